/* A library that takes the linker a while: a long table of others' addresses, then slots that are read-only afterwards. */
#include <ctype.h>
#include <stdlib.h>

/* Each differs from the one before: the linker remembers the last it has looked up. */
#define X1 (void *)isalpha, (void *)isdigit, (void *)isspace, (void *)isupper
#define X2 X1, X1, X1, X1
#define X3 X2, X2, X2, X2
#define X4 X3, X3, X3, X3
#define X5 X4, X4, X4, X4
#define X6 X5, X5, X5, X5
#define X7 X6, X6, X6, X6
#define X8 X7, X7, X7, X7

void *const plugin_table[] = {X8};

void plugin_drop(void *block)
{
	free(block);
}

void *plugin_grow(void *block, size_t bytes)
{
	return realloc(block, bytes);
}
