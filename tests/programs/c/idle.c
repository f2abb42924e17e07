/* idle MIB FILE: writes memory, writes a file to say so, and sleeps for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	char *data = malloc(bytes);
	FILE *file;

	if (!bytes || !data)
		return 125;
	for (size_t i = 0; i < bytes; i++)
		data[i] = (char)(i * 2654435761u >> 13);
	file = fopen(argv[2], "w");
	if (!file || fclose(file))
		return 124;
	for (;;)
		pause();
}
