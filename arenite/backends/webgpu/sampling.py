"""A token chosen from logits on the device: one group, which reads them twice at the most.

The filters need the largest logits in order. Of each thread's share the largest is found first;
as many values as are wanted reach the k-th of these, so all that are wanted lie above it:

    logits   . 3 1 . 7 2 . 5 | . 9 . . 1 6 . 8     threads take every T-th
    largest  . 9 1 . 7 6 . 8                       sorted: the k-th is the bar
    above    9 8 7 6 5 ...                         gathered, sorted, filtered, one drawn

Floats are compared as integers in the same order, since WGSL promises nothing of NaN and infinity.
Where more lie above the bar than there is room for, or the filters leave all that was gathered
though there are more, the choice is left to the host. `generate.sampler` is what judges it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.shader import Shader
from arenite.program.decoding import TokenChoice

#: Values above the bar that there is room for.
ROOM = 1024
#: Largest values that are looked for where top_k sets no number; the most that it may set.
CANDIDATES = 256
#: Parts that the shares of all threads are summed in.
BLOCK = 32
#: What is said of a token beside its number.
DRAWN, UNDECIDED = 1 << 30, 1 << 31

_GREEDY, _FILTERED, _PLAIN = range(3)
#: Words of the memory before the random numbers.
_HEADER = (
    # The device's: numbers that were used, the place of the next token, the last one, and what was
    # chosen last with what is said of it.
    *("drawn", "next", "token", "choice"),
    *("tokens", "kind", "top_k", "window", "log", "bias", "counts", "allowed"),
    *("temperature", "top_p", "min_p", "repetition", "presence", "frequency"),
)
NUMBERS_AT = 32

_TEXT = """struct Parameters {
  logits_at: u32, memory_at: u32, tiles: i32, error_at: u32, zero: u32
}
@group(0) @binding(0) var<uniform> parameters: Parameters;
const NO_NUMBER = 0xff800000u;  // the key of infinity, and above it NaN
const BANNED = 0x007fffffu;     // that of minus infinity
var<workgroup> header: array<u32, NUMBERS>;
var<workgroup> keys: array<u32, ROOMu>;
var<workgroup> places: array<u32, ROOMu>;
var<workgroup> weights: array<f32, ROOMu>;
var<workgroup> tempered: array<f32, ROOMu>;
var<workgroup> n_above: atomic<u32>;
var<workgroup> goal: f32;     // a random part of all weights, and the sum of those before a place
var<workgroup> reached: f32;
var<workgroup> chosen_share: u32;
var<private> bias_at: u32;    // 0: nothing is added
var<private> counts_at: u32;  // of each token among the recent ones; 0: nothing is penalised
var<private> allowed_at: u32; // a bit for each token that may come; 0: all may
var<private> repetition: f32;
var<private> frequency: f32;
var<private> presence: f32;

fn number(at: u32) -> f32 { return bitcast<f32>(header[at]); }

// An integer that is larger where the logit is, biased and penalised; 0 for what may not come.
fn key_at(place: u32) -> u32 {
  if (allowed_at != 0u) {
    let bits = memory_word(allowed_at + (place >> 5u));
    if (((bits >> (place & 31u)) & 1u) == 0u) { return 0u; }
  }
  let word = logits_word(place);
  if (word == 0xff800000u) { return BANNED; }
  if ((word & 0x7fffffffu) >= 0x7f800000u) { return NO_NUMBER; }
  var value = bitcast<f32>(word);
  if (bias_at != 0u) {
    let bias = memory_word(bias_at + place);
    if (bias == 0xff800000u) { return BANNED; }
    value += bitcast<f32>(bias);
  }
  if (counts_at != 0u) {
    let count = memory_word(counts_at + place);
    if (count > 0u) {
      value = select(value * repetition, value / repetition, value > 0.0f);
      value -= f32(count) * frequency + presence;
    }
  }
  let bits = select(bitcast<u32>(value), 0u, value == 0.0f);
  return select(bits | 0x80000000u, ~bits, bits >> 31u == 1u);
}

fn value_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >> 31u == 1u));
}

fn weight(key: u32, top: f32, temperature: f32) -> f32 {
  return select(exp((value_of(key) - top) / temperature), 0.0f, key <= BANNED);
}

fn comes_before(one: u32, other: u32) -> bool {
  return keys[one] > keys[other] || (keys[one] == keys[other] && places[one] < places[other]);
}

// The first n, a power of two, from the largest on; of equal ones the first place.
fn sort(n: u32, lane: u32) {
  for (var size = 2u; size <= n; size = size << 1u) {
    for (var step = size >> 1u; step > 0u; step = step >> 1u) {
      for (var k = lane; k < n / 2u; k += THREADSu) {
        let one = 2u * k - (k & (step - 1u));
        let other = one + step;
        if (comes_before(other, one) == ((one & size) == 0u)) {
          let key = keys[one];
          keys[one] = keys[other];
          keys[other] = key;
          let place = places[one];
          places[one] = places[other];
          places[other] = place;
        }
      }
      workgroupBarrier();
    }
  }
}

// The largest of all threads' to the front.
fn find_largest(lane: u32) {
  for (var half = THREADSu / 2u; half > 0u; half = half >> 1u) {
    if (lane < half && comes_before(lane + half, lane)) {
      keys[lane] = keys[lane + half];
      places[lane] = places[lane + half];
    }
    workgroupBarrier();
  }
}

fn random(total: f32) -> f32 {
  let drawn = header[DRAWN];
  memory_put(DRAWN, drawn + 1u);
  return bitcast<f32>(memory_word(NUMBERS + drawn)) * total;
}

fn choose(token: u32, note: u32) {
  let next = header[NEXT];
  memory_put(NEXT, next + 1u);
  memory_put(header[LOG] + next, token);
  memory_put(TOKEN, token);
  memory_put(CHOICE, token | note);
  if (counts_at != 0u) {
    memory_put(counts_at + token, memory_word(counts_at + token) + 1u);
    let window = header[WINDOW];
    if (next >= window) {
      let left = counts_at + memory_word(header[LOG] + next - window);
      memory_put(left, memory_word(left) - 1u);
    }
  }
}

// Where the sum of weights from a place on passes a goal; `reached` is the sum before. The last one
// with a weight, where rounding leaves the goal behind all.
fn passed(first: u32, end: u32, wanted: f32) -> u32 {
  var found = first;
  for (var k = first; k < end; k++) {
    if (weights[k] > 0.0f) {
      found = k;
      if (reached + weights[k] > wanted) { break; }
    }
    reached += weights[k];
  }
  return found;
}

// One of the first n in order, of which top_p and min_p leave the beginning.
fn choose_of(n: u32, sum_of_all: f32, is_part: bool) {
  var total = sum_of_all;
  if (header[TOP_K] != 0u) {
    total = 0.0f;
    for (var k = 0u; k < n; k++) { total += weights[k]; }
  }
  let least = number(MIN_P) * weights[0];
  let wanted = select(2.0f * total, number(TOP_P) * total, number(TOP_P) < 1.0f);
  var probability = 0.0f;
  var kept = 0u;
  var sum = 0.0f;
  for (; kept < n; kept++) {
    if (kept > 0u && (weights[kept] < least || probability >= wanted)) { break; }
    probability += weights[kept];
    sum += tempered[kept];
  }
  if (is_part && kept == n) { choose(0u, UNDECIDEDu); return; }
  if (kept == 1u) { choose(places[0], 0u); return; }
  for (var k = 0u; k < kept; k++) { weights[k] = tempered[k]; }
  reached = 0.0f;
  choose(places[passed(0u, kept, random(sum))], DRAWN_NOTEu);
}

// One of all, in the order of their places; `weights` are the sums of the threads' shares, which
// are added up by blocks first.
fn choose_of_all(n: u32, share: u32, top: f32, lane: u32) {
  if (lane < BLOCKu) {
    var sum = 0.0f;
    for (var k = 0u; k < THREADSu / BLOCKu; k++) { sum += weights[lane * (THREADSu / BLOCKu) + k]; }
    tempered[lane] = sum;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var total = 0.0f;
    for (var k = 0u; k < BLOCKu; k++) { total += tempered[k]; }
    goal = random(total);
    reached = 0.0f;
    var block = 0u;
    while (block + 1u < BLOCKu && reached + tempered[block] <= goal) {
      reached += tempered[block];
      block++;
    }
    let first = block * (THREADSu / BLOCKu);
    chosen_share = passed(first, first + THREADSu / BLOCKu, goal);
  }
  workgroupBarrier();
  let first = chosen_share * share;
  let count = min(share, n - first);
  for (var k = lane; k < count; k += THREADSu) {
    weights[k] = weight(key_at(first + k), top, number(TEMPERATURE));
  }
  workgroupBarrier();
  if (lane == 0u) { choose(first + passed(0u, count, goal), DRAWN_NOTEu); }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) lane: u32) {
  if (lane < NUMBERS) { header[lane] = memory_word(lane); }
  workgroupBarrier();
  let n = header[TOKENS];
  let kind = header[KIND];
  bias_at = header[BIAS];
  counts_at = header[COUNTS];
  allowed_at = header[ALLOWED];
  repetition = number(REPETITION);
  frequency = number(FREQUENCY);
  presence = number(PRESENCE);
  var best = 0u;
  var place = 0xffffffffu;
  for (var first = lane; first < n; first += 8u * THREADSu) {
    var found: array<u32, 8>;
    for (var k = 0u; k < 8u; k++) {
      let at = first + k * THREADSu;
      found[k] = select(0u, key_at(min(at, n - 1u)), at < n);
    }
    for (var k = 0u; k < 8u; k++) {
      if (found[k] > best) {
        best = found[k];
        place = first + k * THREADSu;
      }
    }
  }
  keys[lane] = best;
  places[lane] = place;
  if (lane == 0u) { atomicStore(&n_above, 0u); }
  workgroupBarrier();
  if (kind == FILTEREDu) { sort(THREADSu, lane); } else { find_largest(lane); }
  let top_key = keys[0];
  let is_number = top_key > BANNED && top_key < NO_NUMBER;
  if (!is_number || kind == GREEDYu) {
    if (lane == 0u) {
      if (is_number) { choose(places[0], 0u); } else { choose(0u, UNDECIDEDu); }
    }
    return;
  }
  let top = value_of(top_key);
  if (kind == PLAINu) {
    let share = (n + THREADSu - 1u) / THREADSu;
    var sum = 0.0f;
    for (var at = lane * share; at < min((lane + 1u) * share, n); at++) {
      sum += weight(key_at(at), top, number(TEMPERATURE));
    }
    weights[lane] = sum;
    workgroupBarrier();
    choose_of_all(n, share, top, lane);
    return;
  }
  let top_k = header[TOP_K];
  let wanted = select(top_k, min(CANDIDATESu, THREADSu / 4u), top_k == 0u);
  let bar = max(keys[min(wanted, THREADSu) - 1u], 1u);
  workgroupBarrier();
  var sum = 0.0f;
  for (var first = lane; first < n; first += 8u * THREADSu) {
    var found: array<u32, 8>;
    for (var k = 0u; k < 8u; k++) {
      let at = first + k * THREADSu;
      found[k] = select(0u, key_at(min(at, n - 1u)), at < n);
    }
    for (var k = 0u; k < 8u; k++) {
      if (top_k == 0u && found[k] > 0u) { sum += weight(found[k], top, 1.0f); }
      if (found[k] >= bar) {
        let slot = atomicAdd(&n_above, 1u);
        if (slot < ROOMu) {
          keys[slot] = found[k];
          places[slot] = first + k * THREADSu;
        }
      }
    }
  }
  weights[lane] = sum;
  workgroupBarrier();
  for (var half = THREADSu / 2u; half > 0u; half = half >> 1u) {
    if (lane < half) { weights[lane] += weights[lane + half]; }
    workgroupBarrier();
  }
  let sum_of_all = weights[0];
  let count = atomicLoad(&n_above);
  workgroupBarrier();
  if (count > ROOMu) {
    if (lane == 0u) { choose(0u, UNDECIDEDu); }
    return;
  }
  var room = 2u;
  while (room < count) { room = room << 1u; }
  for (var k = count + lane; k < room; k += THREADSu) {
    keys[k] = 0u;
    places[k] = 0xffffffffu;
  }
  workgroupBarrier();
  sort(room, lane);
  for (var k = lane; k < count; k += THREADSu) {
    weights[k] = weight(keys[k], top, 1.0f);
    tempered[k] = weight(keys[k], top, number(TEMPERATURE));
  }
  workgroupBarrier();
  if (lane == 0u) {
    let is_part = top_k == 0u && count < n && bar > 1u;
    choose_of(select(min(count, top_k), count, top_k == 0u), sum_of_all, is_part);
  }
}
"""


@cache
def shader(threads: int) -> Shader:
    """That of a group of so many threads, a power of two. Its arrays are a row of logits, and the
    memory of `contents`."""
    text = _TEXT
    values = {
        "THREADS": threads,
        "ROOM": ROOM,
        "BLOCK": BLOCK,
        "CANDIDATES": CANDIDATES,
        "UNDECIDED": UNDECIDED,
        "DRAWN_NOTE": DRAWN,
        "GREEDY": _GREEDY,
        "FILTERED": _FILTERED,
        "PLAIN": _PLAIN,
    }
    for name, value in values.items():
        text = text.replace(f"{name}u", f"{value}u").replace(f"({name})", f"({value})")
    words = [f"const {name.upper()} = {at}u;" for at, name in enumerate(_HEADER)]
    text = "\n".join([*words, f"const NUMBERS = {NUMBERS_AT}u;", text])
    arrays = (("logits", 32, "in"), ("memory", 32, "out"))
    return Shader("sample", text, threads, arrays, atomic=(), n_sizes=0, requires=False)


def sampler_nbytes(n_tokens: int, n_places: int) -> int:
    """Of the memory of `contents` at the most, for texts of so many places and one more."""
    random, log, bias_and_counts = n_places + 1, n_places + 1, 2 * n_tokens
    return 4 * (NUMBERS_AT + random + log + bias_and_counts + mask_words(n_tokens))


def contents(
    choice: TokenChoice, tokens: Sequence[int], numbers: NDArray[np.float64], n_places: int
) -> NDArray[np.uint32]:
    """The memory at the beginning, after `tokens`. A text has `n_places`, of which the first are
    known."""
    n = choice.n_tokens
    log = NUMBERS_AT + len(numbers)
    bias = log + n_places
    counts = bias + n * bool(choice.bias)
    allowed = counts + n * bool(choice.penalty_window)
    memory = np.zeros(allowed + mask_words(n) * choice.is_masked, np.uint32)
    header = {
        "next": len(tokens),
        "token": tokens[-1],
        "tokens": n,
        "kind": _kind(choice),
        "top_k": choice.top_k,
        "window": min(choice.penalty_window, n_places) if choice.penalty_window >= 0 else n_places,
        "log": log,
        "bias": bias if choice.bias else 0,
        "counts": counts if choice.penalty_window else 0,
        "allowed": allowed if choice.is_masked else 0,
    }
    floats = {
        "temperature": choice.temperature,
        "top_p": choice.top_p,
        "min_p": choice.min_p,
        "repetition": choice.repetition_penalty,
        "presence": choice.presence_penalty,
        "frequency": choice.frequency_penalty,
    }
    as_floats = memory.view(np.float32)
    for name, value in header.items():
        memory[_HEADER.index(name)] = value
    for name, number in floats.items():
        as_floats[_HEADER.index(name)] = number
    as_floats[NUMBERS_AT:log] = numbers
    memory[log : log + len(tokens)] = tokens
    for token, added in choice.bias.items():
        as_floats[bias + token] = added
    if choice.penalty_window:
        recent = tokens if choice.penalty_window < 0 else tokens[-choice.penalty_window :]
        np.add.at(memory, counts + np.array([t for t in recent if t < n], np.intp), 1)
    return memory


def _kind(choice: TokenChoice) -> int:
    is_filtered = choice.top_k or choice.top_p < 1 or choice.min_p > 0
    return (_FILTERED if is_filtered else _PLAIN) if choice.temperature else _GREEDY


def mask_words(n_tokens: int) -> int:
    return -(-n_tokens // 32)


#: Bytes of the memory: where `masked` says what kind of choice is made, and where the last token is
#: found, and the last choice.
KIND_AT, TOKEN_AT, CHOICE_AT = (4 * _HEADER.index(name) for name in ("kind", "token", "choice"))


def masked(choice: TokenChoice, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.uint32], int]:
    """The bits of the tokens that may come, and the kind of choice among them: of one alone, which
    no random number is taken for."""
    bits = np.zeros(mask_words(choice.n_tokens) * 4, np.uint8)
    packed = np.packbits(allowed[: choice.n_tokens], bitorder="little")
    bits[: len(packed)] = packed
    is_one = np.count_nonzero(allowed[: choice.n_tokens]) == 1
    return bits.view(np.uint32), _GREEDY if is_one else _kind(choice)
