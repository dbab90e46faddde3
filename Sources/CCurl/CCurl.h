// libcurl's C API, and wrappers for the parts that Swift cannot call: variadic functions.
#pragma once

#include <curl/curl.h>

static inline CURLcode ccurl_set_number(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}

// libcurl copies the text, except that of CURLOPT_POSTFIELDS.
static inline CURLcode ccurl_set_text(CURL *handle, CURLoption option, const char *text) {
    return curl_easy_setopt(handle, option, text);
}

static inline CURLcode ccurl_set_headers(CURL *handle, struct curl_slist *headers) {
    return curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
}

typedef size_t (*ccurl_receiver)(char *bytes, size_t size, size_t count, void *context);

static inline CURLcode ccurl_set_receiver(CURL *handle, ccurl_receiver receiver, void *context) {
    CURLcode code = curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, receiver);
    return code ? code : curl_easy_setopt(handle, CURLOPT_WRITEDATA, context);
}

static inline long ccurl_number(CURL *handle, CURLINFO info) {
    long value = 0;
    return curl_easy_getinfo(handle, info, &value) ? 0 : value;
}

// For CURLINFO_RETRY_AFTER and times; 0 if there is none.
static inline curl_off_t ccurl_large_number(CURL *handle, CURLINFO info) {
    curl_off_t value = 0;
    return curl_easy_getinfo(handle, info, &value) ? 0 : value;
}
