/* NAME MIB MORE: fills MIB, makes NAME.full, waits for NAME.go, fills MORE beside it, and looks whether all is as written. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t word(uint64_t key, size_t index) { return (index + key) * 0x9e3779b97f4a7c15u; }

int main(int count, char **arguments) {
    char path[256];
    if (count < 4)
        return 2;
    size_t first = atol(arguments[2]) * 131072, all = first + atol(arguments[3]) * 131072;
    uint64_t key = getpid() * 1000003u;
    uint64_t *words = malloc(all * sizeof *words);
    if (!words)
        return 2;
    for (size_t i = 0; i < first; i++)
        words[i] = word(key, i);
    snprintf(path, sizeof path, "%s.full", arguments[1]);
    FILE *full = fopen(path, "w");
    if (!full || fclose(full))
        return 2;
    snprintf(path, sizeof path, "%s.go", arguments[1]);
    while (access(path, F_OK))
        usleep(10000);
    for (size_t i = first; i < all; i++)
        words[i] = word(key, i);
    for (size_t i = 0; i < all; i++)
        if (words[i] != word(key, i))
            return 99;
    return 0;
}
