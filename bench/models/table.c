/* SBMA's synthetic table: rows of a page each, of which all are read, written, or read and written, in order. Each word says which
 * row it is in and how often it was written; all are looked at while they are read, or afterwards. */
#include "models.h"

#define WORDS 512
#define PASSES 2

static uint64_t word(uint64_t row, uint64_t column, uint64_t times)
{
	return (row << 20) + (column << 8) + times;
}

/* How many words of a row are not what they should be. */
static uint64_t bad(const uint64_t *row, uint64_t number, uint64_t times)
{
	uint64_t count = 0;

	for (uint64_t c = 0; c < WORDS; c++)
		count += row[c] != word(number, c, times);
	return count;
}

static void fill(uint64_t *row, uint64_t number, uint64_t times)
{
	for (uint64_t c = 0; c < WORDS; c++)
		row[c] = word(number, c, times);
}

static struct outcome run(size_t mebibytes, int reads, int writes)
{
	uint64_t rows = (uint64_t)mebibytes * 256, wrong = 0, times = 0;
	uint64_t *table = array(rows * WORDS, sizeof(*table));
	struct outcome outcome = {0};
	double begun;

	for (uint64_t r = 0; r < rows; r++)
		fill(table + r * WORDS, r, 0);
	if (corrupt)
		table[rows / 2 * WORDS + 7] ^= 1;
	begun = now();
	for (int pass = 0; pass < PASSES; pass++) {
		for (uint64_t r = 0; r < rows; r++) {
			uint64_t *row = table + r * WORDS;

			if (reads)
				wrong += bad(row, r, times);
			if (reads && writes)
				for (uint64_t c = 0; c < WORDS; c++)
					row[c]++;
			else if (writes)
				fill(row, r, times + 1);
		}
		times += (uint64_t)writes;
	}
	outcome.figure = now() - begun;
	/* What was written over cannot be spoilt before. */
	if (corrupt && writes && !reads)
		table[7] ^= 1;
	for (uint64_t r = 0; r < rows && !wrong; r++)
		wrong += bad(table + r * WORDS, r, times);
	if (wrong)
		outcome.wrong = "words of other rows or times";
	outcome.sum = rows;
	return outcome;
}

struct outcome table_read(size_t mebibytes) { return run(mebibytes, 1, 0); }
struct outcome table_write(size_t mebibytes) { return run(mebibytes, 0, 1); }
struct outcome table_change(size_t mebibytes) { return run(mebibytes, 1, 1); }
