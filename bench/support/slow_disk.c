// Reads and writes of more than a page or so as on a disk of SLOW_DISK bytes a second, one after the other: a library
// that a benchmark loads before its process's others. Benchmarks say how slow; the machine's own disk only adds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

static const ssize_t kSmall = 16384;

static void take_time(ssize_t bytes) {
  static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
  const char* const speed = getenv("SLOW_DISK");
  if (speed == NULL || bytes < kSmall) return;
  const double seconds = (double)bytes / atof(speed);
  const struct timespec span = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  pthread_mutex_lock(&disk);
  nanosleep(&span, NULL);
  pthread_mutex_unlock(&disk);
}

#define SLOW(name, Buffer)                                                     \
  ssize_t name(int file, Buffer buffer, size_t size, off_t offset) {           \
    static ssize_t (*real)(int, Buffer, size_t, off_t);                        \
    if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name);                \
    const ssize_t moved = real(file, buffer, size, offset);                    \
    take_time(moved);                                                          \
    return moved;                                                              \
  }

SLOW(pread, void*)
SLOW(pread64, void*)
SLOW(pwrite, const void*)
SLOW(pwrite64, const void*)
