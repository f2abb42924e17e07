/* Everything that C lets one do with an array of file scope, done with dlm arrays. Compiled by dlmc, and by the compiler
 * with -Ddlm=, it must print the same. */
#include <complex.h>
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define N 40
#define M (N + 2)
#define AT(array, i, j) ((array)[(i)][(j)])
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define max(x, y) ({ __typeof__(x) x_ = (x); __typeof__(y) y_ = (y); x_ > y_ ? x_ : y_; })

struct point { int a, b[3]; double in; };
typedef double matrix[N][M];
typedef int a_type;

dlm int a[N][M];
static dlm double in[N], out[N];
dlm struct point points[N];
dlm char text[100];
dlm matrix whole;
dlm matrix several[2];
dlm int *pointers[N], (*functions[3])(int), (*rows[N])[M];
dlm struct { int n[N]; struct point p; } record;
dlm union { double d[4]; uint64_t bits[4]; } both;
extern dlm long later[];
dlm long later[7];
dlm long later[];
int dlm between[3];
dlm static volatile unsigned short flags[9];
dlm const int nothing[5];
dlm _Atomic int counters[4];
dlm double complex waves[N];
dlm int zeros[3][2] = {{0}}, empty[2] = {}, plain[4];
dlm float aligned[64] __attribute__((aligned(64), unused));
_Alignas(32) dlm int more_aligned[8];
dlm int
	over[2]
	    [3];

int size_of_a[sizeof a / sizeof *a == N ? 1 : -1];
enum { ROWS = COUNT(a), BYTES = sizeof a, ELEMENT = sizeof a[0][0] };
_Static_assert(sizeof(a) == sizeof(int) * N * M, "sizeof a");
static size_t sizes[] = {sizeof a, sizeof(a[0]), sizeof in, sizeof points[0].b, sizeof record, sizeof(whole[0])};
__typeof__(a) *address_type;

static int twice(int a)
{
	return 2 * a;
}

static int prototypes(int a[3], int n, int in[n]);
static int prototypes(int a[3], int n, int in[n])
{
	return a[0] + in[n - 1] + (int)out[0];
}

static long sum(int rows, int columns, int b[rows][columns])
{
	long result = 0;

	for (int i = 0; i < rows; i++)
		for (int j = 0; j < columns; j++)
			result += b[i][j];
	return result;
}

static int old_style(a, b) int a; int b;
{
	return a * b;
}

static int shadows(void)
{
	int result = a[1][1];

	{
		int a[2] = {5, (int)sizeof a};

		result += a[0] + a[1];
		{
			extern int puts(const char *);
			struct point in = {.a = 3, .in = 2.5, .b = {[1] = 7}};

			result += in.a + in.b[1] + (int)in.in;
		}
	}
	for (int a = 0, b = a; a < 3; a++)
		result += a + b;
	result += a[2][2];
	if (result) {
		enum { out = 11, text };

		result += out + text;
	}
	{
		typedef int in;
		in x = 4, *p = &x;

		result += *p * (in)3;
	}
	goto a;
a:
	result += (int)(out[1] + 0.5);
	{
		struct a { int a; } b = {1}, *c = &b;
		union in { int in; } d;

		d.in = 3;
		result += b.a + c->a + d.in + (int)__builtin_offsetof(struct point, in) + (int)offsetof(struct a, a);
	}
	{
		int whole = whole = 3;

		result += whole;
	}
	return result + ({ int a = 3; a + 1; }) + ({ a[3][3]; });
}

static int choose(int *p) { return *p; }

int main(int argc, char **argv)
{
	int (*row)[M] = a, (*all)[N][M] = &a, *first = *a, *element = &a[3][4];
	int *past = a[N - 1] + M;
	static int calls;
	long total = 0;
	double largest = 0;

	(void)argv;
	for (int i = 0; i < N; i++)
		for (int j = 0; j < M; j++)
			a[i][j] = i * 100 + j;
	printf("%zu %zu %zu %d %d %d\n", sizeof a, sizeof(a[0]), sizeof a[0][0], ROWS, BYTES, ELEMENT);
	for (size_t i = 0; i < COUNT(sizes); i++)
		printf("%zu ", sizes[i]);
	printf("\n%d %d %d %d %d\n", row[1][2], (*all)[3][4], first[5], *element, past[-1]);
	printf("%d %d %ld %ld\n", AT(a, 2, 3), 3 [a][4], (long)(&a[2][0] - &a[1][0]), (long)(a + 1 - a));
	printf("%d %ld %d\n", twice(a[1][1]), sum(N, M, a), old_style(a[0][1], a[0][2]));
	for (int i = 0; i < N; i++) {
		in[i] = i / 8.0;
		out[i] = sqrt(in[i]) + fabs(-in[i]);
		points[i].a = i, points[i].b[i % 3] = -i, points[i].in = in[i];
		pointers[i] = &a[i][i], rows[i] = &a[i];
		whole[i][i] = several[1][i][i + 1] = in[i];
		record.n[i] = points[i].a, record.p = points[i];
		waves[i] = in[i] + out[i] * I;
	}
	printf("%d %d %d\n", prototypes(a[7], N, record.n), shadows(), choose(a[4] + 2));
	printf("%g %g %g %g\n", out[N - 1], whole[3][3], several[1][4][5], points[5].in);
	printf("%d %d %d %d\n", *pointers[6], (*rows[7])[8], record.n[9], record.p.b[0]);
	printf("%g %g %g\n", creal(waves[4]), cimag(waves[5]), fabs(in[6]));
	functions[argc] = twice;
	functions[0] = &twice;
	printf("%d %d\n", functions[1](21), (*functions[0])(4));
	strcpy(text, "a text in a dlm array: a");
	snprintf(text + strlen(text), sizeof text - strlen(text), " and %c", text[2]);
	printf("%s %zu %c\n", text, strlen(text), *text);
	both.d[1] = 1.5;
	printf("%llx\n", (unsigned long long)both.bits[1]);
	for (int i = 0; i < 7; i++)
		later[i] = i, between[i % 3] = i, flags[i]++;
	printf("%ld %d %d %d %zu\n", later[6], between[2], flags[3], nothing[4], sizeof later);
	atomic_fetch_add(&counters[1], 3);
	counters[1]++;
	printf("%d %d %d %d\n", counters[1], zeros[2][1], empty[1], plain[3]);
	printf("%d %d\n", (int)((uintptr_t)aligned % 64), (int)((uintptr_t)more_aligned % 32));
	printf("%d %zu %zu\n", over[1][2] = 5, sizeof over, _Alignof(int) + __alignof__(in[0]));
	printf("%d\n", _Generic(a, int(*)[M]: 1, default: 2) + _Generic(&a, int(*)[N][M]: 10, default: 20));
	printf("%d %d\n", max(a[1][1], a[2][2]), a[9][9] ?: 3);
	switch (a[0][3]) {
	case sizeof(a[0][0]) - 1:
		puts("three");
		break;
	case 5 ... 9:
		puts("wrong");
	}
	{
		__typeof__(a[0]) copy;
		__auto_type other = a[1][0];
		unsigned __int128 wide = (unsigned __int128)a[2][0] << 70;

		memcpy(copy, a[5], sizeof copy);
		printf("%d %d %d %d\n", copy[7], other, (int)(wide >> 70), (int)sizeof(int[]){1, 2, a[0][0]});
		__asm__ volatile("" : "+m"(a[5][5]) : "r"(&in[0]), [out] "r"(out) : "memory");
		do
			a[5][5]--;
		while (a[5][5] > 500);
		if (!a[0][0])
			a[0][0]++;
		else
			a[0][0]--;
	}
#pragma omp parallel for reduction(+ : total) shared(a) default(none)
	for (int i = 0; i < N; i++)
		for (int j = 0; j < M; j++)
			total += a[i][j];
#pragma omp parallel for if (a[1][1] > 0) num_threads(a[0][2] > 9 ? 1 : 2) reduction(max : largest) schedule(static, (int)sizeof(a[0][0]))
	for (int i = 0; i < N; i++)
		largest = largest > in[i] ? largest : in[i];
#pragma omp parallel
#pragma omp single
	{
#pragma omp task depend(out : out[1])
		out[1] = 3;
#pragma omp task depend(in : out[1]) depend(out : a[2][2])
		a[2][2] = (int)out[1] + 1;
#pragma omp taskwait
#pragma omp atomic
		a[2][2]++;
#pragma omp critical(a)
		calls++;
	}
#pragma omp parallel private(calls)
	{
		int a = omp_get_thread_num();
#pragma omp task firstprivate(a)
		calls = a;
	}
	printf("%ld %g %d %d\n", total, largest, a[2][2], calls);
	address_type = &a;
	printf("%d\n", (*address_type)[1][1] + sizeof(*address_type) == sizeof a + 101);
	return 0;
}
