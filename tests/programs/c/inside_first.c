/* A library whose constructor begins a session from inside, before the program: any program of the tests then runs so.
 * REAM_INSIDE names libream_inside.so, REAM_INSIDE_STORE the store's directory. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("REAM_INSIDE"), *store = getenv("REAM_INSIDE_STORE");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*start)(uint64_t, const char *) = NULL;
	int error;

	/* Of this program alone. */
	unsetenv("LD_PRELOAD");
	if (library)
		*(void **)&start = dlsym(library, "ream_start");
	if (!start) {
		fprintf(stderr, "no library: %s\n", path ? dlerror() : "REAM_INSIDE is not set");
		_exit(98);
	}
	error = start(64 << 20, store);
	if (error) {
		fprintf(stderr, "no session: %s\n", strerror(-error));
		_exit(97);
	}
}
