"""WGSL, as the WebGPU back end prints its kernels, printed as CUDA C: for a first look at CUDA.

In: the text of one module, with a buffer for each array. Out: a translation unit with a kernel and
a function `run` that launches it and times each launch. The language is what our kernels use of
WGSL; anything else does not compile.
"""

from __future__ import annotations

import re

_HEADER = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>
namespace wgsl {
#define INLINE __device__ __forceinline__
using u32 = unsigned int; using i32 = int; using f32 = float; using u64 = unsigned long long;
template <class T> struct vec2 {
  T x, y;
  INLINE vec2() : x(), y() {}
  INLINE explicit vec2(T s) : x(s), y(s) {}
  INLINE vec2(T x, T y) : x(x), y(y) {}
};
struct vec3u { u32 x, y, z; };
template <class T> struct alignas(16) vec4 {
  T x, y, z, w;
  INLINE vec4() : x(), y(), z(), w() {}
  INLINE explicit vec4(T s) : x(s), y(s), z(s), w(s) {}
  INLINE vec4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  INLINE vec4(vec2<T> a, vec2<T> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
  template <class F> INLINE explicit vec4(vec4<F> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  INLINE T& operator[](u32 k) { return (&x)[k]; }
  INLINE const T& operator[](u32 k) const { return (&x)[k]; }
};
using vec4f = vec4<f32>; using vec4u = vec4<u32>; using vec4i = vec4<i32>;
using vec2f = vec2<f32>; using vec2u = vec2<u32>;
template <class T, int N> struct array {
  T of[N];
  INLINE T& operator[](u32 k) { return of[k]; }
};
#define BINARY(sign) \
  template <class T> INLINE vec4<T> operator sign(vec4<T> a, vec4<T> b) { \
    return {a.x sign b.x, a.y sign b.y, a.z sign b.z, a.w sign b.w}; } \
  template <class T> INLINE vec4<T> operator sign(vec4<T> a, T b) { return a sign vec4<T>(b); } \
  template <class T> INLINE vec4<T> operator sign(T a, vec4<T> b) { return vec4<T>(a) sign b; }
BINARY(+) BINARY(-) BINARY(*) BINARY(/) BINARY(&) BINARY(|)
template <class T> INLINE vec4<T>& operator+=(vec4<T>& a, vec4<T> b) { return a = a + b; }
template <class T> INLINE vec4<T>& operator*=(vec4<T>& a, vec4<T> b) { return a = a * b; }
template <class T> INLINE vec4<T>& operator*=(vec4<T>& a, T b) { return a = a * b; }
#define EACH(name, one) \
  INLINE f32 name(f32 x) { return one(x); } \
  INLINE vec4f name(vec4f v) { return {one(v.x), one(v.y), one(v.z), one(v.w)}; }
EACH(round, rintf) EACH(floor, floorf) EACH(ceil, ceilf) EACH(trunc, truncf) EACH(sqrt, sqrtf)
EACH(abs, fabsf) EACH(exp2, exp2f) EACH(inverseSqrt, rsqrtf)
#define PAIR(name, sign) \
  template <class T> INLINE T name(T a, T b) { return a sign b ? a : b; } \
  template <class T> INLINE vec4<T> name(vec4<T> a, vec4<T> b) { \
    return {name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w)}; }
PAIR(min, <) PAIR(max, >)
template <class T> INLINE T select(T no, T yes, bool which) { return which ? yes : no; }
INLINE f32 fma(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
INLINE vec4f fma(vec4f a, vec4f b, vec4f c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w)}; }
INLINE f32 dot(vec4f a, vec4f b) {
  return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w))); }
template <class To, class From> INLINE To bitcast(From x) {
  static_assert(sizeof(To) == sizeof(From), ""); To y; memcpy(&y, &x, sizeof x); return y; }
INLINE u32 extractBits(u32 x, u32 at, u32 n) { return (x >> at) & (n < 32 ? (1u << n) - 1 : ~0u); }
INLINE i32 extractBits(i32 x, u32 at, u32 n) { return i32(u32(x) << (32 - n - at)) >> (32 - n); }
INLINE i32 dot4I8Packed(u32 a, u32 b) { return __dp4a(i32(a), i32(b), 0); }
INLINE u32 pack4xI8(vec4i v) {
  return (u32(v.x) & 255) | (u32(v.y) & 255) << 8 | (u32(v.z) & 255) << 16 | u32(v.w) << 24; }
INLINE vec2f unpack2x16float(u32 x) {
  const float2 v = __half22float2(bitcast<__half2>(x)); return {v.x, v.y}; }
template <class T> INLINE T subgroupShuffleXor(T x, u32 by) {
  return __shfl_xor_sync(~0u, x, int(by)); }
INLINE f32 subgroupAdd(f32 x) {
  for (u32 by = 16; by; by /= 2) x += subgroupShuffleXor(x, by); return x; }
INLINE f32 subgroupMax(f32 x) {
  for (u32 by = 16; by; by /= 2) x = max(x, subgroupShuffleXor(x, by)); return x; }
INLINE void workgroupBarrier() { __syncthreads(); }
INLINE void storageBarrier() { __syncthreads(); }
extern __shared__ __align__(16) unsigned char pool[];
"""

_LAUNCH = r"""
}  // namespace wgsl
extern "C" __global__ void __launch_bounds__(THREADS) entry(ARGUMENTS) {
  wgsl::Kernel kernel{MEMBERS};
  kernel.main({blockIdx.x, blockIdx.y, 0}, {gridDim.x, gridDim.y, 1}, threadIdx.x);
}
extern "C" int run(void** given, const void* parameters, int x, int y, int rounds, float* times) {
  wgsl::Parameters p = *static_cast<const wgsl::Parameters*>(parameters);
  cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, POOL);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin); cudaEventCreate(&end);
  for (int k = 0; k < rounds; k++) {
    cudaEventRecord(begin);
    entry<<<dim3(x, y), THREADS, POOL>>>(GIVEN);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(times + k, begin, end);
  }
  cudaEventDestroy(begin); cudaEventDestroy(end);
  return int(cudaGetLastError());
}
"""

_SIZES = {"u32": 4, "i32": 4, "f32": 4, "vec4": 16, "vec2": 8}


def cuda_text(wgsl: str, threads: int) -> str:
    """The translation unit of a module."""
    text, members, pool = wgsl, ["Parameters parameters;"], 0
    macros: list[str] = []

    def buffer(found: re.Match[str]) -> str:
        constant = "const " if found[1] == "read" else ""
        restrict = " __restrict__" if found[1] == "read" else ""
        members.append(f"{constant}{found[3]}*{restrict} {found[2]};")
        return ""

    def shared(found: re.Match[str]) -> str:
        nonlocal pool
        kind = f"array<{found[2]}, {found[3]}>"
        macros.append(f"#define {found[1]} (*reinterpret_cast<{kind}*>(pool + {pool}))")
        nbytes = _SIZES[found[2].partition("<")[0]] * int(found[3])
        pool += -(-nbytes // 16) * 16
        return ""

    text = re.sub(r"@group\(0\) @binding\(0\) var<uniform> .*\n", "", text)
    storage = r"@group\(0\) @binding\(\d+\) var<storage, (\w+)> (\w+): array<(.*)>;"
    text = re.sub(storage, buffer, text)
    text = re.sub(r"var<workgroup> (\w+): array<(.*), (\d+)>;", shared, text)
    structs = re.findall(r"struct \w+ \{[^}]*\}", text)
    text = re.sub(r"struct \w+ \{[^}]*\}", "", text)
    text = re.sub(r"@compute @workgroup_size\(\d+\)\s*", "", text)
    text = re.sub(r"@builtin\(\w+\) ", "", text)
    text = re.sub(r"\bfn (\w+)\(([^)]*)\)\s*(?:->\s*([\w<>]+)\s*)?\{", _function, text)
    text = re.sub(r"\blet (\w+) =", r"const auto \1 =", text)
    text = re.sub(r"\bvar (\w+) =", r"auto \1 =", text)
    text = re.sub(r"\b(?:let|var) (\w+): ([\w<>, ]+?) =", r"\2 \1 =", text)
    text = re.sub(r"case (\d+)u: \{(.*?)\n\s*\}", r"case \1u: {\2 break;}", text, flags=re.S)
    text = re.sub(r"\b(\d+)i\b", r"\1", text)
    text = re.sub(r"(?<![\w.])(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])", r"\1f", text)
    given = [re.split(r"[\s*]+", one.rstrip(";"))[-1] for one in members]
    kinds = [
        one.rstrip(";")[: -len(name)].strip() for one, name in zip(members, given, strict=True)
    ]
    launch = _LAUNCH
    values = {
        "THREADS": str(threads),
        "POOL": str(max(pool, 16)),
        "ARGUMENTS": ", ".join(f"{_qualified(k)} {n}" for k, n in zip(kinds, given, strict=True)),
        "MEMBERS": ", ".join(given),
        "GIVEN": ", ".join(
            ["p", *(f"({_qualified(kind)})given[{k}]" for k, kind in enumerate(kinds[1:]))]
        ).replace(" __restrict__", ""),
    }
    for name, value in values.items():
        launch = re.sub(rf"\b{name}\b", value, launch)
    return "\n".join(
        [_HEADER, *map(_struct, structs), *macros, "struct Kernel {", *members, text, "};", launch]
    )


def _function(found: re.Match[str]) -> str:
    name, parameters, result = found.groups()
    given = (one.strip().split(":") for one in parameters.split(",") if one.strip())
    listed = ", ".join(f"{kind.strip()} {name}" for name, kind in given)
    return f"INLINE {result or 'void'} {name}({listed}) {{"


def _struct(text: str) -> str:
    head, _, body = text.rstrip("}").partition("{")
    fields = (one.split(":") for one in body.split(",") if one.strip())
    return f"{head}{{ {' '.join(f'{kind.strip()} {name.strip()};' for name, kind in fields)} }};"


def _qualified(kind: str) -> str:
    """A type as it is called outside of the namespace."""
    return re.sub(r"\b(Parameters|vec4|u32|i32)\b", r"wgsl::\1", kind)
