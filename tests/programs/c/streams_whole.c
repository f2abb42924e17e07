/* Two threads write long texts to one stream, and read them again, and none is torn; nor is the stream left locked by a thread
 * that is cancelled in the middle. Arguments: MiB of data, directory for files. */
#include "common.h"
#include <pthread.h>

#define LONG (4 * MEGABYTE)
#define ROUNDS 6

static FILE *file;
static int torn;

static void *write_texts(void *letter)
{
	char *text = malloc(LONG + 1);

	must(text);
	memset(text, (int)(intptr_t)letter, LONG);
	text[LONG] = 0;
	for (int k = 0; k < ROUNDS; k++) {
		must(fwrite(text, LONG / 4, 4, file) == 4);
		must(fputs(text, file) >= 0);
		must(fprintf(file, "%s", text) == LONG);
	}
	free(text);
	return NULL;
}

static void *read_texts(void *text)
{
	while (fread(text, 1, LONG, file) == LONG)
		for (size_t i = 1; i < LONG; i++)
			if (((char *)text)[i] != ((char *)text)[0]) {
				__atomic_fetch_add(&torn, 1, __ATOMIC_SEQ_CST);
				break;
			}
	return text;
}

static void both(void *(*work)(void *), void *one, void *other)
{
	pthread_t threads[2];

	must(pthread_create(&threads[0], NULL, work, one) == 0);
	must(pthread_create(&threads[1], NULL, work, other) == 0);
	must(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
}

static void *write_for_ever(void *text)
{
	fwrite(text, 1, 2 * LONG, file);
	return NULL;
}

/* Into a pipe that nobody reads. */
static void cancel_a_writer(void *text)
{
	pthread_t thread;
	void *result;
	int ends[2];

	must(pipe(ends) == 0 && (file = fdopen(ends[1], "w")));
	must(pthread_create(&thread, NULL, write_for_ever, text) == 0);
	usleep(200000);
	must(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	must(ftrylockfile(file) == 0);
	funlockfile(file);
	close(ends[0]);
}

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 160) * MEGABYTE / 8;
	uint64_t *data = malloc(words * 8);
	char *texts = malloc(2 * LONG), name[4096];

	must(data && texts && argc > 2);
	fill(data, words, 5, 0);
	snprintf(name, sizeof name, "%s/texts", argv[2]);
	must((file = fopen(name, "w")));
	both(write_texts, (void *)'a', (void *)'b');
	must(fclose(file) == 0 && (file = fopen(name, "r")));
	read_texts(texts);
	if (torn)
		fail("%d texts were torn when they were written", torn);
	rewind(file);
	both(read_texts, texts, texts + LONG);
	if (torn)
		fail("%d texts were torn when they were read", torn);
	must(fclose(file) == 0 && unlink(name) == 0);
	cancel_a_writer(texts);
	check(data, words, 5, 0, "after the streams");
	printf("whole\n");
	return 0;
}
