/* A disk that breaks under some files of one process: preloaded, and switched on by a file.

   BROKEN_DISK names that file. While it is there, its one line `CALL SUFFIX ERRNO` is in force for files whose path
   ends with SUFFIX:

     read, write  every such call fails with ERRNO
     sync         the next sync fails with ERRNO and takes the file away: a second one would succeed
     lose         the same, and what is written before it never arrives: pages marked as clean that are not on the disk
     hang         a sync waits until the line is gone

   Once a fault has happened, each later write and sync of any file named ledger.db* or cache.db* is a line in
   BROKEN_DISK.later. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static volatile int broken;

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int ends_with(const char *path, const char *suffix) {
    size_t length = strlen(path), wanted = strlen(suffix);
    return length >= wanted && strcmp(path + length - wanted, suffix) == 0;
}

/* The errno that `call` on `fd` is to fail with; 0 for a healthy disk. */
static int fault(const char *call, int fd) {
    const char *control = getenv("BROKEN_DISK");
    char line[256] = "", wanted[16], suffix[64], path[4096];
    int code, file = control ? open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0 || sscanf(line, "%15s %63s %d", wanted, suffix, &code) != 3) return 0;
    return strcmp(wanted, call) == 0 && path_of(fd, path, sizeof path) && ends_with(path, suffix) ? code : 0;
}

static int fail(int code) {
    broken = 1;
    errno = code;
    return -1;
}

static void note(const char *call, int fd) {
    char path[4096], later[4096], line[4200];
    if (!broken || !path_of(fd, path, sizeof path)) return;
    const char *name = strrchr(path, '/');
    if (!name || (strncmp(name, "/ledger.db", 10) && strncmp(name, "/cache.db", 9))) return;
    snprintf(later, sizeof later, "%s.later", getenv("BROKEN_DISK"));
    int file = open(later, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int length = snprintf(line, sizeof line, "%s %s\n", call, name + 1);
    if (write(file, line, length) != length) abort();
    close(file);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t at) {
    int code = fault("read", fd);
    return code ? fail(code) : REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    int code = fault("write", fd);
    if (code) return fail(code);
    if (fault("lose", fd)) return size;
    note("write", fd);
    return REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, bytes, size, at);
}

static int sync_with(const char *name, int fd) {
    while (fault("hang", fd)) usleep(10000);
    int code = fault("sync", fd);
    if (!code) code = fault("lose", fd);
    if (code) {
        unlink(getenv("BROKEN_DISK"));
        return fail(code);
    }
    note("sync", fd);
    return REAL(int, name, int)(fd);
}

ssize_t pread(int, void *, size_t, off_t) __attribute__((alias("pread64")));
ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));
int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
