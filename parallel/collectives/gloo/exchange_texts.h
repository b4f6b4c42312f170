// Texts that the processes exchange through the store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gloo/process_store.h>

namespace lockstep {

// Returns the texts of all processes, by process. They agree on `name`, which is new. The process that serves
// the store returns after the others have read: it may leave then, and take the store with it. Throws
// PeerError that names the processes which do not answer within the limit; and when some have not answered
// and `given_up` says so, which is asked several times a second.
std::vector<std::string> exchange_texts(const ProcessStore& store, const World& world,
                                        const std::string& name, const std::string& own,
                                        std::chrono::milliseconds limit,
                                        const std::function<bool()>& given_up);

// Removes this process's keys of an exchange, once a later one has returned: then all have read them.
void forget_texts(const ProcessStore& store, const World& world, const std::string& name);

}  // namespace lockstep
