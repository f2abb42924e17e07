/* Memory that may only be read is handed to the kernel: never touched, discarded before it was protected or afterwards, and
 * with content. Argument 2 is a directory for files. */
#include "area.h"
#include <fcntl.h>
#include <sys/uio.h>

enum { WAYS = 4, BYTES = 1 << 20, PART = 20000 };

static char *prepared(int way)
{
	char *block = mmap(NULL, 8 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *part = block + BYTES;

	must(block != MAP_FAILED);
	if (way > 0)
		memset(block, 5, 8 * BYTES);
	if (way == 1)
		must(madvise(part, BYTES, MADV_DONTNEED) == 0);
	must(mprotect(part, BYTES, PROT_READ) == 0);
	if (way == 2)
		must(madvise(part, BYTES, MADV_DONTNEED) == 0);
	return part;
}

int main(int argc, char **argv)
{
	static char expected[PART];
	char name[4096];
	char *back;
	int ends[2], file;

	make_area(argc, argv);
	snprintf(name, sizeof(name), "%s/read_only", argv[2]);
	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && pipe(ends) == 0);
	for (int way = 0; way < WAYS; way++) {
		char *part = prepared(way);
		struct iovec parts[2] = { { part + 170 * PAGE, PART / 2 }, { part + 200 * PAGE + 9, PART / 2 } };

		back = place();
		memset(expected, way == 3 ? 5 : 0, PART);
		use_others();
		must(pwrite(file, part + 7 * PAGE, PART, 0) == PART);
		must(pread(file, back, PART, 0) == PART && memcmp(back, expected, PART) == 0);
		use_others();
		must(write(ends[1], part + 70 * PAGE + 1, PART) == PART);
		must(read(ends[0], back, PART) == PART && memcmp(back, expected, PART) == 0);
		use_others();
		must(pwritev(file, parts, 2, PART) == PART);
		must(pread(file, back, PART, PART) == PART && memcmp(back, expected, PART) == 0);
		/* What may not even be read stays so. */
		must(mprotect(part, BYTES, PROT_NONE) == 0);
		must(write(ends[1], part + 100 * PAGE, PART) == -1 && errno == EFAULT);
		must(mprotect(part, BYTES / 2, PROT_READ) == 0);
		must(write(ends[1], part + 100 * PAGE, PART) == PART && read(ends[0], back, PART) == PART);
		must(memcmp(back, expected, PART) == 0);
		must(write(ends[1], part + BYTES / 2 + PAGE, PART) == -1 && errno == EFAULT);
		must(mprotect(part, BYTES, PROT_READ | PROT_WRITE) == 0);
		memset(part, way, BYTES);
		memset(expected, way, PART);
		use_others();
		must(write(ends[1], part + 33 * PAGE, PART) == PART);
		must(read(ends[0], back, PART) == PART && memcmp(back, expected, PART) == 0);
		printf("way %d is written\n", way);
	}
	must(close(file) == 0 && unlink(name) == 0);
	return 0;
}
