// Begins a user namespace, and enters the mount namespace it is in, while more is reserved than the budget has left: both are
// refused to a process of several threads. What it holds is touched before, between and after, and must be paged all the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *data;

static void fill(size_t from, size_t to) {
    for (size_t at = from; at < to; at += 8) *(size_t *)(data + at) = at * 0x9e3779b97f4a7c15u;
}

static size_t wrong(size_t to) {
    size_t count = 0;
    for (size_t at = 0; at < to; at += 8) count += *(size_t *)(data + at) != at * 0x9e3779b97f4a7c15u;
    return count;
}

// Who has no number there may begin no further one.
static void map(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) < 0) printf("%s: %s\n", path, strerror(errno));
    close(file);
}

static void map_one(const char *path, unsigned number) {
    char text[32];
    snprintf(text, sizeof text, "0 %u 1", number);
    map(path, text);
}

// Who begins a namespace of process numbers gets no more threads; its children do.
static int numbers(size_t bytes) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
        printf("unshare of numbers: %s\n", strerror(errno));
        return 6;
    }
    pid_t child = fork();
    if (child == 0) {
        fill(0, bytes);
        _exit(wrong(bytes) != 0 || getpid() != 1);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) return 7;
    fill(0, bytes);
    printf("child %#x, wrong %zu\n", (unsigned)status, wrong(bytes));
    return 0;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 96u << 20;
    size_t step = bytes / 16;
    data = malloc(bytes);
    if (!data) return 2;
    if (argc > 2) return numbers(bytes);
    fill(0, step);
    unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWUSER)) {
        printf("unshare: %s\n", strerror(errno));
        return 3;
    }
    map("/proc/self/setgroups", "deny");
    map_one("/proc/self/uid_map", user);
    map_one("/proc/self/gid_map", group);
    fill(step, 2 * step);
    // Again, and the last with a descriptor whose kind only the kernel knows.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
        printf("unshare again: %s\n", strerror(errno));
        return 4;
    }
    int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    for (int kind = 0; kind < 2; kind++) {
        if (setns(mounts, kind ? CLONE_NEWNS : 0)) {
            printf("setns %d: %s\n", kind, strerror(errno));
            return 5;
        }
    }
    close(mounts);
    // Not to be had: the namespace it is in.
    int users = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    int refused = setns(users, CLONE_NEWUSER) == -1 && errno == EINVAL;
    close(users);
    fill(2 * step, bytes);
    printf("refused %d, wrong %zu\n", refused, wrong(bytes));
    return 0;
}
