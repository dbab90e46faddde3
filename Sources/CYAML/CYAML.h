// libyaml's C API.
#pragma once

#include <yaml.h>
