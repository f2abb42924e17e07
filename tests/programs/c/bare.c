/* A program without any library: its first instruction looks at every register, and then it touches 64 MiB of .bss and
 * sleeps until a signal comes. Exits with 1 when a register is not as the kernel leaves it. */
static volatile char zeros[64 << 20];
unsigned long found[16];

static long call(long number, long one)
{
	long result;
#if defined(__x86_64__)
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one) : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = one;
	register long x1 __asm__("x1") = 0, x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	result = x0;
#endif
	return result;
}

#if defined(__x86_64__)
enum { SLEEP = 34, END = 231 };
__asm__(".globl _start\n_start:\n"
	"movq %rax, found(%rip)\nmovq %rbx, found+8(%rip)\nmovq %rcx, found+16(%rip)\nmovq %rdx, found+24(%rip)\n"
	"movq %rsi, found+32(%rip)\nmovq %rdi, found+40(%rip)\nmovq %rbp, found+48(%rip)\nmovq %r8, found+56(%rip)\n"
	"movq %r9, found+64(%rip)\nmovq %r10, found+72(%rip)\nmovq %r12, found+80(%rip)\nmovq %r13, found+88(%rip)\n"
	"movq %r14, found+96(%rip)\nmovq %r15, found+104(%rip)\n"
	"movq (%rsp), %rdi\nandq $-16, %rsp\ncall begin\n");
#else
enum { SLEEP = 73, END = 94 };
__asm__(".globl _start\n_start:\nldr x0, [sp]\nbl begin\n");
#endif

/* The kernel keeps where a call was made, and the flags, in rcx and r11: those it may change. */
__attribute__((used, noreturn)) void begin(long arguments)
{
	for (int i = 0; i < 14; i++)
		if (i != 2 && found[i] != 0)
			call(END, 1);
	if (arguments != 1)
		call(END, 2);
	for (unsigned long i = 0; i < sizeof zeros; i += 4096)
		zeros[i] = 1;
	call(SLEEP, 0);
	call(END, 3);
	for (;;)
		;
}
