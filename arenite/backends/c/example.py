"""main.c of an exported language model: reads tokens as numbers, writes the likeliest ones."""

from __future__ import annotations

from string import Template

from arenite.backends.c.layout import Memory, Weights

_MAIN = Template("""\
/* Tokens in, the likeliest tokens out, one after the other:

       cc -O3 -march=native -fopenmp-simd -DSIMD $name.c ${files}main.c -lm -o $name
       ./$name 16 504 3575 282
                ^ how many tokens to write, then those of the prompt
*/
#include "$name.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static float logits[${macro}_LOGITS_BYTES / sizeof(float)];
$memory
static int64_t likeliest(void) {
    const int64_t count = (int64_t)(sizeof logits / sizeof logits[0]);
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (logits[k] > logits[best]) best = k;
    return best;
}

static int64_t number(const char *text) {
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\\0') {
        fprintf(stderr, "'%s' is no number of a token, nor of tokens\\n", text);
        exit(2);
    }
    return value;
}
$read
int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s COUNT TOKEN...\\n", argv[0]);
        return 2;
    }
$init
    if (code != 0) {
        fprintf(stderr, "init failed with code %d\\n", code);
        return 1;
    }
    const int64_t count = number(argv[1]);
    int64_t position = 0;
    int64_t token = 0;
    for (int64_t k = 0; k + 1 < argc - 2 + count; k++) {
        if (k < argc - 2) token = number(argv[2 + k]);
        code = ${name}_run(${self}&token, &position, logits, 1);
        if (code != 0) {
            fprintf(stderr, "run failed with code %d at token %lld\\n", code, (long long)k);
            return 1;
        }
        position++;
        if (k + 1 >= argc - 2) {
            token = likeliest();
            printf("%lld\\n", (long long)token);
            fflush(stdout);
        }
    }
    return 0;
}
""")

_READ = Template("""
_Alignas(${macro}_ALIGNMENT) static unsigned char weights[${macro}_WEIGHTS_BYTES];

static int read_weights(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t n = fread(weights, 1, sizeof weights, file);
    fclose(file);
    return n == sizeof weights;
}
""")

_CHECK = Template("""\
    if (!read_weights("$name.weights")) {
        fprintf(stderr, "$name.weights can't be read, or is too short\\n");
        return 1;
    }
""")


def greedy_main(name: str, memory: Memory, weights: Weights) -> str:
    """The text of main.c."""
    names = {"name": name, "macro": name.upper()}
    is_file = weights == "file"
    given = []
    memory_text = ""
    if memory == "caller":
        given = ["&program", "arena", "sizeof arena"]
        memory_text = (
            f"_Alignas({name.upper()}_ALIGNMENT) static unsigned char "
            f"arena[{name.upper()}_ARENA_BYTES];\nstatic {name}_program program;\n"
        )
    given += ["weights"] if is_file else []
    init = f"    int code = {name}_init({', '.join(given)});"
    return _MAIN.substitute(
        **names,
        files="" if is_file else f"{name}_weights.c ",
        memory=memory_text,
        read=_READ.substitute(**names) if is_file else "",
        init=(_CHECK.substitute(**names) if is_file else "") + init,
        self="&program, " if memory == "caller" else "",
    )
