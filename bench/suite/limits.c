/* What the machine itself can do, for the benchmark: one program, four roles, in plain C without libraries.
 *
 *   sink BATCH FILE crc|plain   accepts a connection on a port it prints, receives until the end and writes
 *                               BATCH bytes at a time to FILE, after a CRC-32C of them (or not)
 *   feed PORT BYTES             sends so much to a sink
 *   source FILE CONNECTIONS     accepts connections and sends FILE to each by sendfile, a MiB at a time, in turn
 *   drain PORT                  receives until the end and discards
 *
 * sink and source print `BYTES CPU_SECONDS SECONDS` at the end, their own user and system time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, MOST = 64 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int listening(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) || listen(fd, MOST)) fail("listen");
    if (getsockname(fd, (struct sockaddr *)&at, &size)) fail("getsockname");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static int connected(const char *port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    return fd;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
/* Three streams at once hide the instruction's latency; they are not joined, as only the cost is wanted. */
__attribute__((target("sse4.2"))) static uint32_t crc32c(const unsigned char *data, size_t size) {
    uint64_t a = ~0u, b = ~0u, c = ~0u;
    size_t third = size / 24 * 8;
    for (size_t i = 0; i < third; i += 8) {
        uint64_t x, y, z;
        memcpy(&x, data + i, 8);
        memcpy(&y, data + third + i, 8);
        memcpy(&z, data + 2 * third + i, 8);
        a = _mm_crc32_u64(a, x);
        b = _mm_crc32_u64(b, y);
        c = _mm_crc32_u64(c, z);
    }
    for (size_t i = 3 * third; i < size; i++) c = _mm_crc32_u8((uint32_t)c, data[i]);
    return (uint32_t)(a ^ b ^ c);
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc32c(const unsigned char *data, size_t size) {
    uint32_t a = ~0u;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t x;
        memcpy(&x, data + i, 8);
        a = __crc32cd(a, x);
    }
    for (; i < size; i++) a = __crc32cb(a, data[i]);
    return a;
}
#else
#error "no CRC-32C instruction is known for this processor"
#endif

static volatile uint32_t kept;

static void flush_batch(int file, const unsigned char *from, size_t size, int with_crc, off_t at) {
    if (with_crc) kept = crc32c(from, size);
    if (pwrite(file, from, size, at) != (ssize_t)size) fail("pwrite");
}

static void sink(size_t batch, const char *path, int with_crc) {
    int listener = listening(), fd = accept(listener, NULL, NULL);
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    size_t room = batch > MIB ? batch : MIB, have = 0;
    unsigned char *buffer = malloc(room);
    off_t at = 0;
    if (fd < 0 || file < 0 || !buffer) fail("sink");
    double begin = now(), used = cpu();
    for (;;) {
        ssize_t got = recv(fd, buffer + have, room - have, 0);
        if (got < 0) fail("recv");
        if (got == 0) break;
        have += got;
        size_t done = 0;
        for (; have - done >= batch; done += batch, at += batch) flush_batch(file, buffer + done, batch, with_crc, at);
        memmove(buffer, buffer + done, have - done);
        have -= done;
    }
    flush_batch(file, buffer, have, with_crc, at);
    printf("%lld %.4f %.4f\n", (long long)(at + have), cpu() - used, now() - begin);
}

static void feed(const char *port, long long bytes) {
    int fd = connected(port);
    char *buffer = malloc(MIB);
    memset(buffer, 'k', MIB);
    while (bytes > 0) {
        ssize_t sent = send(fd, buffer, bytes < MIB ? bytes : MIB, 0);
        if (sent < 0) fail("send");
        bytes -= sent;
    }
    close(fd);
}

static void source(const char *path, int connections) {
    int listener = listening(), fds[MOST], left = connections;
    off_t at[MOST] = {0};
    int file = open(path, O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) || connections > MOST) fail(path);
    for (int i = 0; i < connections; i++) fds[i] = accept(listener, NULL, NULL);
    double begin = now(), used = cpu();
    long long sent = 0;
    while (left) {
        for (int i = 0; i < connections; i++) {
            if (fds[i] < 0) continue;
            ssize_t got = sendfile(fds[i], file, &at[i], MIB);
            if (got < 0) fail("sendfile");
            sent += got;
            if (at[i] >= about.st_size) {
                close(fds[i]);
                fds[i] = -1;
                left--;
            }
        }
    }
    printf("%lld %.4f %.4f\n", sent, cpu() - used, now() - begin);
}

static void drain(const char *port) {
    int fd = connected(port);
    char *buffer = malloc(MIB);
    while (recv(fd, buffer, MIB, 0) > 0) continue;
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "sink")) sink(atol(words[2]), words[3], !strcmp(words[4], "crc"));
    else if (count == 4 && !strcmp(words[1], "feed")) feed(words[2], atoll(words[3]));
    else if (count == 4 && !strcmp(words[1], "source")) source(words[2], atoi(words[3]));
    else if (count == 3 && !strcmp(words[1], "drain")) drain(words[2]);
    else {
        fprintf(stderr, "usage: limits sink BATCH FILE crc|plain | feed PORT BYTES | source FILE N | drain PORT\n");
        return 2;
    }
    return 0;
}
