// Stands in for Gloo's header of this name, which torch's package lacks and ProcessGroupGloo.hpp includes. That
// header needs nothing from it.
#pragma once
