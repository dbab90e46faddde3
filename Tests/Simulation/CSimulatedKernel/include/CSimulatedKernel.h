// The switches of the calls in CSimulatedKernel.c.
#pragma once

// The first number of a simulated descriptor, and the one behind the last; the program must have no real descriptor there.
#define SIMULATED_DESCRIPTORS_BEGIN 16
#define SIMULATED_DESCRIPTORS_END 64

// From now on descriptors and time are simulated.
void simulation_begin(void);

// A copy of this process, in which 0 is returned: Swift cannot call fork (fork(2)). The copy ends when it takes too long.
int simulation_fork(unsigned int seconds);

// Whether the calling thread appears to be another one, such as a store's writer.
void simulation_pretend_another_thread(int pretends);
