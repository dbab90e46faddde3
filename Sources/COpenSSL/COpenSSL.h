// OpenSSL's C API, and wrappers for the parts that Swift cannot call: macros over the ctrl functions.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// The options are macros with casts, which Swift does not import.
static const uint64_t COPENSSL_OP_NO_COMPRESSION = SSL_OP_NO_COMPRESSION;
static const uint64_t COPENSSL_OP_NO_RENEGOTIATION = SSL_OP_NO_RENEGOTIATION;
static const uint64_t COPENSSL_OP_CIPHER_SERVER_PREFERENCE = SSL_OP_CIPHER_SERVER_PREFERENCE;
static const uint64_t COPENSSL_OP_PRIORITIZE_CHACHA = SSL_OP_PRIORITIZE_CHACHA;
static const uint64_t COPENSSL_OP_NO_TICKET = SSL_OP_NO_TICKET;
static const uint64_t COPENSSL_OP_IGNORE_UNEXPECTED_EOF = SSL_OP_IGNORE_UNEXPECTED_EOF;

static const uint32_t COPENSSL_MODE_ENABLE_PARTIAL_WRITE = SSL_MODE_ENABLE_PARTIAL_WRITE;
static const uint32_t COPENSSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER;
static const uint32_t COPENSSL_MODE_RELEASE_BUFFERS = SSL_MODE_RELEASE_BUFFERS;

static inline int copenssl_set_versions(SSL_CTX *context, int minimum, int maximum) {
    return SSL_CTX_set_min_proto_version(context, minimum) && SSL_CTX_set_max_proto_version(context, maximum);
}

static inline void copenssl_set_mode(SSL_CTX *context, uint32_t mode) {
    SSL_CTX_set_mode(context, mode);
}

static inline int copenssl_set_groups(SSL_CTX *context, const char *names) {
    return SSL_CTX_set1_groups_list(context, names);
}

// For the session whose peer's certificate is being verified.
static inline int copenssl_set_groups_of_session(X509_STORE_CTX *verification, const char *names) {
    SSL *session = X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
    return SSL_set1_groups_list(session, names);
}

// The most bytes that a peer's certificates may have.
static inline void copenssl_set_max_certificates(SSL_CTX *context, long bytes) {
    SSL_CTX_set_max_cert_list(context, bytes);
}

// Sessions are kept in tickets only, so many for each handshake.
static inline void copenssl_set_tickets(SSL_CTX *context, size_t count, long seconds) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, count);
    SSL_CTX_set_timeout(context, seconds);
}

static inline void copenssl_set_read_ahead(SSL_CTX *context) {
    SSL_CTX_set_read_ahead(context, 1);
}

static inline void copenssl_set_server_name_callback(
    SSL_CTX *context, int (*callback)(SSL *, int *, void *), void *argument
) {
    SSL_CTX_set_tlsext_servername_callback(context, callback);
    SSL_CTX_set_tlsext_servername_arg(context, argument);
}

static inline int copenssl_set_server_name(SSL *session, const char *name) {
    return SSL_set_tlsext_host_name(session, name);
}

static inline void copenssl_clear_retry(BIO *transport) {
    BIO_clear_retry_flags(transport);
}

static inline void copenssl_retry_read(BIO *transport) {
    BIO_set_retry_read(transport);
}

static inline void copenssl_retry_write(BIO *transport) {
    BIO_set_retry_write(transport);
}

// In C, because the parameter array has to stay in place while OpenSSL reads it.
static inline int copenssl_start_hmac_sha256(EVP_MAC_CTX *context, const unsigned char *key, size_t length) {
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_init(context, key, length, parameters);
}

static inline int copenssl_get_tag(EVP_CIPHER_CTX *context, void *tag, int length) {
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, length, tag);
}

// OpenSSL only reads the tag, although its parameter is not const.
static inline int copenssl_set_tag(EVP_CIPHER_CTX *context, const void *tag, int length) {
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, length, (void *)tag);
}
