/* What two files with dlm arrays share. */
#include <stdio.h>

#define ROWS 300
#define COLUMNS 200

extern dlm long first[][COLUMNS];
extern dlm long second[];

long sum_of_first(void);
