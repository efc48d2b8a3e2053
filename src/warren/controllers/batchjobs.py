"""The pods of batch Jobs, for clusters whose Kubernetes is ours (decided in `dws.pods.jobpods`)."""

from warren.base.clock import Clock
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.pods import jobpods
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.jobpods import BatchJobSnapshot
from warren.dws.pods.pod import Pod
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class BatchJobController:
    """Reconciles every batch Job."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        """`informers` have the index `job` of pods (`jobpods.job_of`)."""
        self._client = client
        self._clock = clock
        self._jobs = informers.of(kinds.BATCH_JOB)
        self._pods = informers.of(kinds.POD)
        self.reconciler: Reconciler[Key] = Reconciler("batch jobs", self.reconcile)
        self._jobs.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._pods.listen(self._pod_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a Job."""
        raw = self._jobs.get(key)
        if raw is None:
            return None
        job = read(raw, BatchJob)
        snapshot = BatchJobSnapshot(
            job=job,
            template=raw["spec"]["template"],
            pods=[read(each, Pod) for each in self._pods.by_index("job", job.metadata.uid)],
            now=self._clock.now(),
        )
        writes, delay = jobpods.decide(snapshot)
        await perform(self._client, writes)
        return delay

    def _pod_changed(self, obj: Object) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner["kind"] == kinds.BATCH_JOB.name:
                self.reconciler.add(Key(key_of(obj).namespace, owner["name"]))
