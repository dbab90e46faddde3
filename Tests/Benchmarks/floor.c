/* The floor of the benchmark: the cost of a request that is not processed.
 *
 * One thread, one edge-triggered epoll instance, one recv and one send per request. The only thing it looks for is the end
 * of a request: the empty line, then the number of body bytes that every request of the workload has.
 *
 * Usage: floor PORT BODY_BYTES ANSWER_FILE
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { max_descriptors = 4096, max_events = 256, room = 16384 };

/* How far the current request of a connection has been read. */
struct progress {
    size_t matched;   /* bytes of the empty line seen so far */
    size_t body_left; /* bytes of the body still to come */
};

static struct progress connections[max_descriptors];
static char answer[room];
static size_t answer_bytes;
static size_t body_bytes;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void read_answer(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail(path);
    answer_bytes = fread(answer, 1, sizeof answer, file);
    fclose(file);
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
    if (listen(listener, 1024) != 0) fail("listen");
    return listener;
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = descriptor};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) fail("epoll_ctl");
}

static void accept_all(int epoll, int listener) {
    int on = 1;
    int descriptor;
    while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (descriptor >= max_descriptors) {
            close(descriptor);
            continue;
        }
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connections[descriptor] = (struct progress){0, 0};
        watch(epoll, descriptor);
    }
    if (errno != EAGAIN) fail("accept4");
}

/* Counts the requests that end within these bytes. */
static int count_requests(struct progress *progress, const char *bytes, size_t count) {
    static const char empty_line[] = "\r\n\r\n";
    const char *end = bytes + count;
    int requests = 0;
    while (bytes < end) {
        if (progress->body_left > 0) {
            size_t skipped = progress->body_left < (size_t)(end - bytes) ? progress->body_left : (size_t)(end - bytes);
            bytes += skipped;
            progress->body_left -= skipped;
            requests += progress->body_left == 0;
            continue;
        }
        if (progress->matched == 0) {
            bytes = memchr(bytes, '\r', end - bytes);
            if (bytes == NULL) break;
        }
        progress->matched = *bytes == empty_line[progress->matched] ? progress->matched + 1 : *bytes == '\r';
        bytes++;
        if (progress->matched == 4) {
            *progress = (struct progress){0, body_bytes};
            requests += body_bytes == 0;
        }
    }
    return requests;
}

/* Answers the requests that have arrived; returns false at the end of the connection. */
static int serve(int descriptor, int has_ended) {
    static char bytes[room];
    for (;;) {
        ssize_t count = recv(descriptor, bytes, room, 0);
        if (count < 0) return errno == EAGAIN;
        if (count == 0) return 0;
        int requests = count_requests(&connections[descriptor], bytes, count);
        while (requests-- > 0) {
            if (send(descriptor, answer, answer_bytes, MSG_NOSIGNAL) != (ssize_t)answer_bytes) return 0;
        }
        /* A read that did not fill the buffer has emptied the socket; epoll reports new data. */
        if (count < room && !has_ended) return 1;
    }
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: floor PORT BODY_BYTES ANSWER_FILE\n");
        return 2;
    }
    body_bytes = strtoul(arguments[2], NULL, 10);
    read_answer(arguments[3]);
    int listener = listen_on(atoi(arguments[1]));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, listener);
    struct epoll_event events[max_events];
    for (;;) {
        int ready = epoll_wait(epoll, events, max_events, -1);
        for (int index = 0; index < ready; index++) {
            int descriptor = events[index].data.fd;
            if (descriptor == listener) {
                accept_all(epoll, listener);
            } else if (!serve(descriptor, events[index].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
                close(descriptor);
            }
        }
    }
}
