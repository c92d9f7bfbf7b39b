/* A wrong wall clock for whatever is started with LD_PRELOAD=skew.so and WALLE_SKEW_S=SECONDS: CLOCK_REALTIME
   is off by that. The monotonic clock is right, and so is what waits until a moment of the wrong clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

/* moments of the monotonic clock are far below: no machine has run since 2001 */
#define WALL 1000000000L
#define NEXT(name) \
    static __typeof__(&name) next; \
    if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static long skew(void) {
    static long seconds;
    static int known;
    if (!known) {
        const char *given = getenv("WALLE_SKEW_S");
        seconds = given ? atol(given) : 0;
        known = 1;
    }
    return seconds;
}

static struct timespec right(const struct timespec *until) {
    struct timespec moment = *until;
    if (moment.tv_sec > WALL) moment.tv_sec -= skew();
    return moment;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime);
    int failed = next(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    NEXT(gettimeofday);
    int failed = next(now, zone);
    if (!failed) now->tv_sec += skew();
    return failed;
}

time_t time(time_t *now) {
    NEXT(time);
    time_t found = next(NULL) + skew();
    if (now) *now = found;
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    NEXT(pthread_cond_timedwait);
    struct timespec moment = right(until);
    return next(cond, mutex, &moment);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    NEXT(pthread_cond_clockwait);
    struct timespec moment = right(until);
    return next(cond, mutex, clock, &moment);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    NEXT(sem_timedwait);
    struct timespec moment = right(until);
    return next(semaphore, &moment);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    NEXT(pthread_mutex_timedlock);
    struct timespec moment = right(until);
    return next(mutex, &moment);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    NEXT(clock_nanosleep);
    struct timespec moment = flags & TIMER_ABSTIME ? right(until) : *until;
    return next(clock, flags, &moment, left);
}
