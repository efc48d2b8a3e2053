/* What an MPI job does at least: all tasks find each other, add up, and send some MiB. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4 << 20 }; /* more than any MPI sends without asking the receiver first */

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, length, beside, sum;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm node;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &beside);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

    char *sent = malloc(BYTES), *got = malloc(BYTES), *expected = malloc(BYTES);
    const char *verdict = "all right";
    memset(sent, rank + 1, BYTES);
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        MPI_Sendrecv(sent, BYTES, MPI_CHAR, to, 0, got, BYTES, MPI_CHAR, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        memset(expected, from + 1, BYTES);
        if (memcmp(got, expected, BYTES) != 0)
            verdict = "damaged";
    }
    printf("%d of %d on %s with %d: sum %d, %s\n", rank, size, host, beside, sum, verdict);
    MPI_Finalize();
    return 0;
}
