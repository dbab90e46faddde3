// Sends requests at a rate, however fast the server is, and prints how long each took since it was due:
//
//     paced PORT CONNECTIONS RATE SECONDS FILE REQUEST_BYTES ANSWER_BYTES USER_OFFSET SEED
//
// All requests of the file have one length, and all answers too. Each request gets a new user of fifteen digits at the offset,
// unless that is negative. A request that finds no free connection waits for one, and that counts. It never sleeps, so it needs
// a core of its own. It prints the number of requests, the microseconds of the run, and the median and the 99th percentile of
// the latencies in microseconds.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { USER_DIGITS = 15, EVENTS = 256 };

struct connection {
    int socket;
    long left;
    double due;
};

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, number = socket(AF_INET, SOCK_STREAM, 0);
    if (number < 0 || connect(number, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return number;
}

static int ascending(const void *one, const void *other) {
    float left = *(const float *)one, right = *(const float *)other;
    return (left > right) - (left < right);
}

int main(int count, char **arguments) {
    if (count != 10) {
        fprintf(stderr, "paced: nine arguments are needed\n");
        return 2;
    }
    int port = atoi(arguments[1]), connections = atoi(arguments[2]);
    double rate = atof(arguments[3]), seconds = atof(arguments[4]);
    long size = atol(arguments[6]), answer = atol(arguments[7]), offset = atol(arguments[8]);
    srandom(atoi(arguments[9]));
    FILE *file = fopen(arguments[5], "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) fail(arguments[5]);
    long requests = ftell(file) / size, wanted = rate * seconds, sent = 0, answered = 0;
    char *text = malloc(requests * size), received[65536];
    float *latencies = malloc(wanted * sizeof *latencies);
    struct connection *all = calloc(connections, sizeof *all), **idle = malloc(connections * sizeof *idle);
    if (!text || !latencies || !all || !idle) fail("malloc");
    rewind(file);
    if (fread(text, size, requests, file) != (size_t)requests) fail(arguments[5]);
    fclose(file);

    int epoll = epoll_create1(0), free = connections;
    for (int index = 0; index < connections; index++) {
        all[index].socket = connected(port);
        idle[index] = &all[index];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[index]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[index].socket, &event) != 0) fail("epoll_ctl");
    }
    // So that no user was in a request of an earlier run.
    long user = (time(NULL) % 1000000) * 1000000000L;
    double interval = 1e6 / rate, begun = microseconds(), now = begun;
    while (answered < wanted) {
        now = microseconds();
        while (free > 0 && sent < wanted && begun + sent * interval <= now) {
            struct connection *connection = idle[--free];
            char *request = text + random() % requests * size;
            if (offset >= 0) {
                long rest = ++user;
                for (int digit = USER_DIGITS; digit-- > 0; rest /= 10) request[offset + digit] = '0' + rest % 10;
            }
            connection->due = begun + sent++ * interval;
            connection->left = answer;
            // A request always fits into the socket, as nothing else is under way on the connection.
            if (send(connection->socket, request, size, MSG_NOSIGNAL) != size) fail("send");
        }
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, 0);
        if (ready < 0) fail("epoll_wait");
        now = microseconds();
        for (int index = 0; index < ready; index++) {
            struct connection *connection = events[index].data.ptr;
            long length = recv(connection->socket, received, sizeof received, 0);
            if (length <= 0 || length > connection->left) {
                fprintf(stderr, "paced: the connection has ended, or an answer has another length\n");
                return 1;
            }
            connection->left -= length;
            if (connection->left > 0) continue;
            latencies[answered++] = now - connection->due;
            idle[free++] = connection;
        }
    }
    qsort(latencies, answered, sizeof *latencies, ascending);
    printf("%ld %.0f %.0f %.0f\n", answered, now - begun, latencies[answered / 2], latencies[answered * 99 / 100]);
    return 0;
}
