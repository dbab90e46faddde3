// libpq's C API.
#pragma once

#include <libpq-fe.h>
