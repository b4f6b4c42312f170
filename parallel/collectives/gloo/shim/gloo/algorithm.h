// Empty stand-in for a header of Gloo: ProcessGroupGloo.hpp includes it and uses nothing of it (context.h).
#pragma once
