/* Nameservers that do not answer: looking up a name takes half a minute, and fails; preloaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "real_function.h"

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    if (!node || !strstr(node, "example.com")) return REAL(getaddrinfo)(node, service, hints, found);
    sleep(30);
    return EAI_AGAIN;
}
