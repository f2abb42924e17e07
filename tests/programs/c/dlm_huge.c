/* Arrays of 96 GiB that a program touches here and there: more than RAM and swap, where the compiler's own would not be
 * linked, or not be executed. */
#include <stdio.h>

#define STEP (1UL << 26)

dlm char huge[1UL << 36];
dlm double cube[2048][2048][1024];

int main(void)
{
	unsigned long sum = 0;

	for (unsigned long i = 0; i < sizeof huge; i += STEP)
		huge[i] = (char)(i / STEP % 100);
	for (unsigned long i = 0; i < sizeof huge; i += STEP)
		sum += (unsigned char)huge[i];
	cube[2047][2047][1023] = 1.5;
	printf("%zu %zu %lu %g %g\n", sizeof huge, sizeof cube, sum, cube[2047][2047][1023], cube[0][0][0]);
	return 0;
}
