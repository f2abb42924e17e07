/* Touches the static data of c/library.c, which is linked, and with argument 1 (a path) those of a copy loaded later;
 * prints a line for each, as look.h does. */
#include "look.h"
#include <dlfcn.h>

char *library_memory(size_t which, size_t *bytes);

static void both(const char *bss, const char *data, char *(*memory)(size_t, size_t *))
{
	size_t bytes;
	char *start = memory(1, &bytes);

	must(start[0] == 1 && start[bytes - 1] == 0);
	one(data, start, bytes);
	start = memory(0, &bytes);
	must(start[0] == 0 && start[bytes - 1] == 0);
	one(bss, start, bytes);
}

int main(int argc, char **argv)
{
	begin_to_look();
	both("library_bss", "library_data", library_memory);
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		char *(*memory)(size_t, size_t *);

		must(library);
		*(void **)&memory = dlsym(library, "library_memory");
		must(memory && memory != library_memory);
		both("loaded_bss", "loaded_data", memory);
	}
	return 0;
}
