#include <flux/core.h>
