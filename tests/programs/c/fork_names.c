/* Forks with threads when the memory in which libc keeps the state of its name service has been cold for long: libc reads
 * that in fork() itself. Argument: MiB. Prints what the child finds of a user, and how it ended. */
#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *sleeps(void *unused)
{
	(void)unused;
	pause();
	return NULL;
}

int main(int count, char **words)
{
	size_t numbers = (count > 1 ? strtoul(words[1], NULL, 10) << 20 : 0) / sizeof(uint64_t);
	struct passwd *user = getpwuid(0);
	uint64_t *number = malloc(numbers * sizeof(*number)), sum = 0;
	pthread_t thread;

	if (!user || !number || pthread_create(&thread, NULL, sleeps, NULL))
		return 1;
	for (int round = 0; round < 3; round++) {
		int status;
		pid_t child;

		for (size_t i = 0; i < numbers; i++)
			number[i] = i * 2654435761u + (uint64_t)round;
		for (size_t i = 0; i < numbers; i++)
			sum += number[i];
		child = fork();
		if (child < 0)
			return 1;
		if (child == 0) {
			user = getpwuid(0);
			_exit(user && user->pw_uid == 0 && number[numbers - 1] == (numbers - 1) * 2654435761u + (uint64_t)round ? 7 : 1);
		}
		waitpid(child, &status, 0);
		printf("round %d: %llu, child %d\n", round, (unsigned long long)sum, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	}
	return 0;
}
