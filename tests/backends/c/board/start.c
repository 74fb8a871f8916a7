/* A Cortex-M4 without an operating system: vectors, memory, and output through the debugger. */
#include <stddef.h>
#include <stdint.h>

extern uint32_t stack_top, data_source, data_start, data_end, bss_start, bss_end;

int main(void);

static int call_debugger(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void write_word(uint32_t word) {
    char text[10];
    for (int k = 0; k < 8; k++) text[k] = "0123456789abcdef"[word >> (28 - 4 * k) & 15];
    text[8] = '\n';
    text[9] = 0;
    call_debugger(4, text); /* SYS_WRITE0 */
}

static void stop(int is_fault) {
    const uint32_t reason[2] = {is_fault ? 0x20023 : 0x20026, 0}; /* RunTimeError, ApplicationExit */
    call_debugger(0x18, (const void *)(uintptr_t)reason[0]);
    for (;;) {
    }
}

static void fault(void) {
    write_word(0xdeadbeef);
    stop(1);
}

static void reset(void) {
    *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* the floating-point unit */
    __asm__ volatile("dsb\nisb");
    uint32_t *from = &data_source;
    for (uint32_t *to = &data_start; to < &data_end; to++) *to = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end; to++) *to = 0;
    stop(main() != 0);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (void *)reset, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault,
};

/* What a compiler may call of its own accord, also where there is no C library. */
#ifdef WITHOUT_LIBRARY
void *memset(void *target, int value, size_t n) {
    for (unsigned char *to = target; n > 0; n--) *to++ = (unsigned char)value;
    return target;
}

void *memcpy(void *target, const void *source, size_t n) {
    const unsigned char *from = source;
    for (unsigned char *to = target; n > 0; n--) *to++ = *from++;
    return target;
}
#endif
