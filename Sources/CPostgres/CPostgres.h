// libpq's C API.
#pragma once

#include <libpq-fe.h>

// Macros of characters, which Swift does not import: fields of an error or a warning.
static const int CPOSTGRES_SEVERITY = PG_DIAG_SEVERITY_NONLOCALIZED;
static const int CPOSTGRES_SQLSTATE = PG_DIAG_SQLSTATE;
static const int CPOSTGRES_FUNCTION = PG_DIAG_SOURCE_FUNCTION;
static const int CPOSTGRES_MESSAGE = PG_DIAG_MESSAGE_PRIMARY;
