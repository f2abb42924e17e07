/* Fills an allocation, frees it, and says how much space files without a name that this process or Ream has open took
 * before and a while after, in MiB. Arguments: MiB. */
#include "common.h"
#include <dirent.h>
#include <sys/stat.h>

static int each(const char *path, void (*visit)(const char *))
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	char name[2048];

	if (!directory)
		return 0;
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
		visit(name);
	}
	closedir(directory);
	return 1;
}

static ino_t seen[16];
static size_t seen_count;
static long long bytes;

static void file(const char *name)
{
	struct stat stat_;

	if (stat(name, &stat_) != 0 || !S_ISREG(stat_.st_mode) || stat_.st_nlink != 0)
		return;
	for (size_t i = 0; i < seen_count; i++)
		if (seen[i] == stat_.st_ino)
			return;
	must(seen_count < 16);
	seen[seen_count++] = stat_.st_ino;
	bytes += stat_.st_blocks * 512LL;
}

static void thread(const char *name)
{
	char files[1024];

	snprintf(files, sizeof files, "%s/fd", name);
	each(files, file);
}

static long long space(void)
{
	seen_count = 0;
	bytes = 0;
	must(each("/proc/self/task", thread));
	return bytes / MEGABYTE;
}

int main(int argc, char **argv)
{
	size_t size = argument(argc, argv, 1, 256) * MEGABYTE;
	uint64_t *data = malloc(size);
	long long before, after;

	must(data);
	fill(data, size / 8, 0, 1);
	check(data, size / 8, 0, 1, "data");
	before = after = space();
	free(data);
	for (int tries = 0; tries < 1200 && after >= before / 2; tries++) {
		usleep(50000);
		after = space();
	}
	printf("%lld %lld\n", before, after);
	return 0;
}
