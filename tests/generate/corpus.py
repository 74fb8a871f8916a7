"""Texts to tokenize: many scripts, signs, spaces, numbers, code, and what ought not to be there."""
# ruff: noqa: RUF001 - letters that look like others are the point

from __future__ import annotations

import random

PROVERBS = [
    "A rolling stone gathers no moss. Don't count your chickens before they've hatched!",
    "THE EARLY BIRD catches the worm; it's I'll-timed, we're told, he'd say: they'Ve 'S 'LL 'd.",
    "Übung macht den Meister. Wer im Glashaus sitzt, soll nicht mit Steinen werfen. Straße, ẞ.",
    "Petit à petit, l’oiseau fait son nid. Où est la bibliothèque? Ça va, œuf, naïve façade.",
    "Más vale tarde que nunca. ¿Qué tal? ¡Olé! El niño comió piñata.",
    "Тише едешь, дальше будешь. Ёжик в тумане; щука, съезд.",
    "Ἀρχὴ ἥμισυ παντός. Γνῶθι σεαυτόν — ΟΔΟΣ οδός.",
    "千里之行，始於足下。三人行，必有我師焉。",
    "七転び八起き。さるもきからおちる。カタカナとｶﾅと漢字。",
    "가는 말이 고와야 오는 말이 곱다. 시작이 반이다.",
    "الصبر مفتاح الفرج. اَلْعِلْمُ نُورٌ ١٢٣٤٥",
    "סוף טוב הכל טוב. שָׁלוֹם עֲלֵיכֶם",
    "बूँद बूँद से सागर भरता है। १२३ हिन्दी",
    "ช้าๆ ได้พร้าเล่มงาม ๑๒๓",
    "ტყუილს მოკლე ფეხები აქვს. Հայերեն լեզու.",
    "தமிழ் மொழி இனிது. বাংলা ভাষা। ಕನ್ನಡ ತೆಲುಗు",
    "Þetta reddast. Ąžuolas ėjo, źdźbło, čeština, İstanbul ısı DİYARBAKIR.",
    "Tiếng Việt: ăn quả nhớ kẻ trồng cây.",
]
SIGNS = [
    "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☕️ ✈ 🤦🏼‍♀️",
    "a😀b👍c 1️⃣2️⃣ ✅✅✅ ★☆♫♪ →←↑↓ ∀x∈ℝ: ⌈x⌉ ≥ x ≠ ∞ ½ ¼ ² ³ Ⅳ ① ㊗",
    "$12.50 €3 £4 ¥5 50% 3°C #tag @name a&b c|d x^y ~z `code` _under_ *star* \\back\\ /path/",
    "“quotes” ‘single’ «guillemets» „low“ … – — ‐ ′ ″ § ¶ † ‡ • · ™ © ®",
    "...!!!???,,,;;;:::((()))[[[]]]{{{}}}<<<>>>",
    "e\u0301 a\u0308 o\u0302\u0323 n\u0303 \u0301\u0308 zalgơ̷͝ c\u0327a va",
    "ﬁ ﬂ ﬃ Ǆ ǅ ǆ ſ K Å ª º ㎏ ％ ＡＢＣ ａｂｃ １２３ ｡｢｣",
    "\U0001d4d7\U0001d4ee\U0001d4f5\U0001d4f5\U0001d4f8 \U00020000\U0002a6d6 \U00010330 \U0001f9ff",
]
SPACES = [
    "",
    " ",
    "  ",
    "   three   spaces   between   ",
    "\t",
    "\n",
    "\n\n\n",
    "\r\n\r\nline\r\nline\r\n",
    "a\tb\t\tc\t\t\td",
    "a b  c   d    e     f      g       h        i                 j",
    " leading and trailing ",
    "\n \n  \n   \n\t\n",
    "end of line   \nnext",
    "no\u00a0break\u2003em\u2009thin\u3000wide\u200bzero\u2028line\u2029para\u0085next",
    "tabs\v\f\x1c\x1d\x1e\x1fand more",
    "\u2581 lower one eighth block \u2581\u2581 twice",
]
NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567 12345678 3.14159 -42 +7 1e-5 0x1F 1,000,000.00",
    "2024-02-30T23:59:59Z v1.2.3-rc4 192.168.0.1 555-0100 1st 2nd 3rd 4th",
    "99999999999999999999999999999999 000 007 ½½ ١٢٣٤٥٦ १२३४ 一二三 ⅷ ²³",
    "abc123def456 x1y2z3 a1 1a 1.a a.1 $1 1$ 3x3=9",
]
CODE = [
    "def f(x: int) -> int:\n    return x * 2  # doubles\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c[i]; } // done\n",
    '{"key": [1, 2.5, null, true], "nested": {"a\\"b": "\\u00e9\\n"}}',
    "SELECT * FROM t WHERE a <> 'it''s' AND b >= 10;\n",
    "<html><body class='x'>&nbsp;<!-- note --></body></html>",
    "if(!x||y&&z){return~a^b>>>2;}",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case HTTPServer iPhone XMLHttpRequest2",
    "\\frac{a}{b} \\sum_{i=1}^{n} x_i^2 $$E=mc^2$$",
]
ODD = [
    "\x00",
    "a\x00b\x01c\x02d\x07e\x08f\x1bg\x7fh",
    "\u0080\u0099\u009f control",
    "\ufeffbyte order mark \ufffe \uffff \U0010ffff \ufffd replaced",
    "\u202aembedding\u202c \u200eltr\u200f \u2066iso\u2069 soft\u00adhyphen",
    "\ue000 private \U000f0000 use \U00100000",
    "\u0378 unassigned \U000e0001 tags",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "hahahahahahahahaha lalalalala ------------------------------ ==================== ....",
    "<|im_start|>user\nhi<|im_end|>\n<s>[INST] x [/INST]</s><unk><0x0A><pad><|endoftext|>[CLS]",
    "antidisestablishmentarianism Donaudampfschifffahrtsgesellschaftskapitän pneumono"
    + "ultra" * 8,
]
TEXTS = [*PROVERBS, *SIGNS, *SPACES, *NUMBERS, *CODE, *ODD]


def random_texts(count: int, seed: int) -> list[str]:
    """Parts of the texts above, cut anywhere and joined anyhow, with any character in between."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 6)):
            text = rng.choice(TEXTS)
            begin = rng.randint(0, len(text))
            parts.append(text[begin : begin + rng.randint(0, 12)])
            parts.append(rng.choice(["", "", " ", "\n", "  ", "'", chr(rng.randint(1, 0x2FFF))]))
        found.append("".join(parts))
    return found
