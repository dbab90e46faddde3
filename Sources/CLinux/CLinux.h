// What Swift's Glibc module leaves out of Linux. Declarations and one-line wrappers only.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>

// Behind _GNU_SOURCE, which must not be defined here: Swift would then see fd_set defined twice.
int accept4(int descriptor, struct sockaddr *restrict address, socklen_t *restrict length, int flags);

// EPOLLET is bit 31 of an unsigned word, EPOLLEXCLUSIVE bit 28; as plain words they combine without casts.
static const unsigned int CLINUX_EPOLLIN = EPOLLIN;
static const unsigned int CLINUX_EPOLLOUT = EPOLLOUT;
static const unsigned int CLINUX_EPOLLRDHUP = EPOLLRDHUP;
static const unsigned int CLINUX_EPOLLERR = EPOLLERR;
static const unsigned int CLINUX_EPOLLHUP = EPOLLHUP;
static const unsigned int CLINUX_EPOLLET = EPOLLET;
static const unsigned int CLINUX_EPOLLEXCLUSIVE = EPOLLEXCLUSIVE;
