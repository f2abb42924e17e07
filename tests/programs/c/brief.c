/* Says that it ran, and ends. */
#include <stdio.h>

int main(void)
{
	puts("ran");
	return 7;
}
