/* Hashes: SHA-256 names content, CRC-32 guards packed trees, a gear hash finds chunk borders.
 *
 * Processor instructions are used where they are found at run time; the portable code gives the same numbers.
 */
#include "_native.h"

#include <pthread.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_SHA2)
#include <arm_neon.h>
#endif

/* ---- SHA-256 ------------------------------------------------------------------------------------------------ */

static const uint32_t K256[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t ror(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_blocks_portable(uint32_t state[8], const uint8_t *p, size_t blocks)
{
    for (; blocks--; p += 64) {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | p[4 * i + 1] << 16 | p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
        memcpy(s, state, sizeof s);
        for (int i = 0; i < 64; i++) {
            uint32_t e = s[4], a = s[0];
            uint32_t t1 = s[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + K256[i] + w[i];
            uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s);
            s[4] += t1;
            s[0] = t1 + t2;
        }
        for (int i = 0; i < 8; i++)
            state[i] += s[i];
    }
}

#if defined(__x86_64__)
__attribute__((target("sha,sse4.1,ssse3"))) static void sha_blocks_ni(uint32_t state[8], const uint8_t *p, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bULL, 0x0405060700010203ULL);
    __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
    __m128i s1 = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
    __m128i s0 = _mm_alignr_epi8(t, s1, 8); /* the instructions want ABEF and CDGH */
    s1 = _mm_blend_epi16(s1, t, 0xF0);
    for (; blocks--; p += 64) {
        __m128i m[4], a = s0, b = s1;
        for (int i = 0; i < 4; i++)
            m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i w = m[i & 3], k = _mm_add_epi32(w, _mm_load_si128((const __m128i *)(K256 + 4 * i)));
            s1 = _mm_sha256rnds2_epu32(s1, s0, k);
            s0 = _mm_sha256rnds2_epu32(s0, s1, _mm_shuffle_epi32(k, 0x0E));
            if (i < 12) {
                __m128i last = m[(i + 3) & 3];
                w = _mm_add_epi32(_mm_sha256msg1_epu32(w, m[(i + 1) & 3]), _mm_alignr_epi8(last, m[(i + 2) & 3], 4));
                m[i & 3] = _mm_sha256msg2_epu32(w, last);
            }
        }
        s0 = _mm_add_epi32(s0, a);
        s1 = _mm_add_epi32(s1, b);
    }
    t = _mm_shuffle_epi32(s0, 0x1B);
    s1 = _mm_shuffle_epi32(s1, 0xB1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(t, s1, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(s1, t, 8));
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_SHA2)
static void sha_blocks_arm(uint32_t state[8], const uint8_t *p, size_t blocks)
{
    uint32x4_t s0 = vld1q_u32(state), s1 = vld1q_u32(state + 4);
    for (; blocks--; p += 64) {
        uint32x4_t m[4], a = s0, b = s1;
        for (int i = 0; i < 4; i++)
            m[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
        for (int i = 0; i < 16; i++) {
            uint32x4_t k = vaddq_u32(m[i & 3], vld1q_u32(K256 + 4 * i)), old = s0;
            s0 = vsha256hq_u32(s0, s1, k);
            s1 = vsha256h2q_u32(s1, old, k);
            if (i < 12)
                m[i & 3] = vsha256su1q_u32(vsha256su0q_u32(m[i & 3], m[(i + 1) & 3]), m[(i + 2) & 3], m[(i + 3) & 3]);
        }
        s0 = vaddq_u32(s0, a);
        s1 = vaddq_u32(s1, b);
    }
    vst1q_u32(state, s0);
    vst1q_u32(state + 4, s1);
}
#endif

/* ---- tables and processor features, set up once --------------------------------------------------------------- */

static void (*sha_blocks)(uint32_t *, const uint8_t *, size_t) = sha_blocks_portable;
static uint32_t crc_table[8][256];
static uint64_t gear[256];
static bool has_clmul;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_up(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0xEDB88320 : c >> 1;
        crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc_table[t][i] = crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
    uint64_t seed = 0x5265707269657665; /* splitmix64; the twin draws the same numbers */
    for (int i = 0; i < 256; i++) {
        uint64_t z = seed += 0x9E3779B97F4A7C15;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        gear[i] = z ^ z >> 31;
    }
#if defined(__x86_64__)
    unsigned a, b, c, d, a7, b7, c7, d7;
    /* Bits by number: the compilers' cpuid.h do not agree on their names. 9: SSSE3, 19: SSE4.1, 1: PCLMULQDQ, 29: SHA. */
    if (__get_cpuid(1, &a, &b, &c, &d) && c >> 9 & 1 && c >> 19 & 1) {
        has_clmul = c >> 1 & 1;
        if (__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) && b7 >> 29 & 1)
            sha_blocks = sha_blocks_ni;
    }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_SHA2)
    sha_blocks = sha_blocks_arm;
#endif
}

void set_up_hashes(void) { pthread_once(&once, set_up); }

void sha256(const uint8_t *data, size_t len, uint8_t out[32])
{
    uint32_t s[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t tail[128] = {0};
    size_t rest = len % 64, blocks = rest < 56 ? 1 : 2;
    sha_blocks(s, data, len / 64);
    if (rest)
        memcpy(tail, data + len - rest, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        tail[64 * blocks - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    sha_blocks(s, tail, blocks);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- CRC-32 (zlib's) ------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
/* Folding by carry-less multiplication (Gopal et al., Intel 2009): a check of the index must not cost more than the
 * scan that it protects. `len` is a multiple of 16, at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_fold(uint32_t crc, const uint8_t *p, size_t len)
{
#define LOAD(i) _mm_loadu_si128((const __m128i *)(p + 16 * (i)))
#define FOLD(x, k, y) _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0), _mm_clmulepi64_si128(x, k, 0x11)), y)
    const __m128i by4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0), poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    __m128i x[4] = {_mm_xor_si128(LOAD(0), _mm_cvtsi32_si128((int)crc)), LOAD(1), LOAD(2), LOAD(3)};
    for (p += 64, len -= 64; len >= 64; p += 64, len -= 64)
        for (int i = 0; i < 4; i++)
            x[i] = FOLD(x[i], by4, LOAD(i));
    for (int i = 1; i < 4; i++)
        x[0] = FOLD(x[0], by1, x[i]);
    for (; len >= 16; p += 16, len -= 16)
        x[0] = FOLD(x[0], by1, LOAD(0));
    __m128i a = _mm_xor_si128(_mm_srli_si128(x[0], 8), _mm_clmulepi64_si128(x[0], by1, 0x10));
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), _mm_set_epi64x(0, 0x0163cd6124), 0), _mm_srli_si128(a, 4));
    __m128i b = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), poly, 0x10), low);
    a = _mm_xor_si128(a, _mm_clmulepi64_si128(b, poly, 0));
    return (uint32_t)_mm_extract_epi32(a, 1);
#undef LOAD
#undef FOLD
}
#endif

uint32_t crc32_of(const uint8_t *p, size_t len)
{
    uint32_t c = ~0u;
#if defined(__x86_64__)
    if (has_clmul && len >= 64) {
        size_t n = len & ~(size_t)15;
        c = crc_fold(c, p, n);
        p += n;
        len -= n;
    }
#endif
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v ^= c;
        c = 0;
        for (int i = 0; i < 8; i++)
            c ^= crc_table[7 - i][v >> 8 * i & 255];
    }
    for (; len; len--)
        c = c >> 8 ^ crc_table[0][(c ^ *p++) & 255];
    return ~c;
}

/* ---- what Python sees ------------------------------------------------------------------------------------------- */

PyObject *py_sha256(PyObject *module, PyObject *obj)
{
    Py_buffer view;
    uint8_t digest[32];
    (void)module;
    if (PyObject_GetBuffer(obj, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > 16384) {
        Py_BEGIN_ALLOW_THREADS
        sha256(view.buf, (size_t)view.len, digest);
        Py_END_ALLOW_THREADS
    } else {
        sha256(view.buf, (size_t)view.len, digest);
    }
    PyBuffer_Release(&view);
    return PyBytes_FromStringAndSize((char *)digest, 32);
}

/* Length of the first chunk: a gear hash, with a harder condition before `avg` and an easier one after (FastCDC). */
static size_t next_cut(const uint8_t *p, size_t n, size_t min, size_t avg, size_t max)
{
    if (n <= min)
        return n;
    int bits = 63 - __builtin_clzll(avg);
    uint64_t hard = ~0ULL << (63 - bits), easy = ~0ULL << (65 - bits), h = 0;
    size_t i = min, end = n < max ? n : max, mid = end < avg ? end : avg;
    for (; i < mid; i++)
        if (!((h = (h << 1) + gear[p[i]]) & hard))
            return i + 1;
    for (; i < end; i++)
        if (!((h = (h << 1) + gear[p[i]]) & easy))
            return i + 1;
    return end;
}

PyObject *py_cuts(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t min, avg, max;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnn", &view, &min, &avg, &max))
        return NULL;
    PyObject *out = NULL;
    if (min < 64 || avg < min || max < avg || max > 1 << 30)
        PyErr_SetString(PyExc_ValueError, "cuts needs 64 <= min <= avg <= max <= 2**30");
    else
        out = PyList_New(0);
    for (Py_ssize_t pos = 0; out && pos < view.len;) {
        size_t n;
        Py_BEGIN_ALLOW_THREADS
        n = next_cut((uint8_t *)view.buf + pos, (size_t)(view.len - pos), (size_t)min, (size_t)avg, (size_t)max);
        Py_END_ALLOW_THREADS
        PyObject *len = PyLong_FromSize_t(n);
        if (!len || PyList_Append(out, len) < 0)
            Py_CLEAR(out);
        Py_XDECREF(len);
        pos += (Py_ssize_t)n;
    }
    PyBuffer_Release(&view);
    return out;
}
