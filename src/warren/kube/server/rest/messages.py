"""What the numbers mean in the protobuf messages of Kubernetes' own kinds.

After the `generated.proto` files and the `json` tags of `k8s.io/api` 0.32. `protobuf` reads
messages by it.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec


class Field(msgspec.Struct, frozen=True):
    """What a number means in a message."""

    name: str
    """Its name in JSON; empty where its fields are written among those of its owner."""
    type: str
    collection: str
    """`[]` for a list, `{}` for a map from strings, empty for one value."""
    keeps_zero: bool
    """Whether JSON has it even when it is empty or zero."""


MESSAGE_BY_KIND: Final[Mapping[tuple[str, str], str]] = {
    (version, kind): kind
    for version, kinds in {
        "v1": "ConfigMap Event Namespace Node Pod Secret Service ServiceAccount",
        "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration"
        " ValidatingWebhookConfiguration",
        "authentication.k8s.io/v1": "SelfSubjectReview TokenRequest TokenReview",
        "authorization.k8s.io/v1": "LocalSubjectAccessReview SelfSubjectAccessReview"
        " SelfSubjectRulesReview SubjectAccessReview",
        "batch/v1": "Job",
        "coordination.k8s.io/v1": "Lease",
        "policy/v1": "Eviction",
        "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    }.items()
    for kind in kinds.split()
} | {("events.k8s.io/v1", "Event"): "EventsEvent"}
"""The message of each kind; two kinds have the same name."""

_FIELD_PATTERN: Final = re.compile(r"(\d+)\.(\w*)(?::(\w+))?(\[\]|\{\})?(!?)")
"""NUMBER.NAME:TYPE and `[]` for a list, `{}` for a map, `!` for what is kept when it is zero.

A field without a type is a string; one without a name is written among its owner's fields.
"""

_TABLE: Final = """
TypeMeta: 1.apiVersion 2.kind
ObjectMeta: 1.name 2.generateName 3.namespace 4.selfLink 5.uid 6.resourceVersion 7.generation:int
    8.creationTimestamp:Time 9.deletionTimestamp:Time 10.deletionGracePeriodSeconds:int!
    11.labels{} 12.annotations{} 13.ownerReferences:OwnerReference[] 14.finalizers[]
    17.managedFields:ManagedFieldsEntry[]
Time: 1.seconds:int! 2.nanos:int!
OwnerReference: 1.kind! 3.name! 4.uid! 5.apiVersion! 6.controller:bool! 7.blockOwnerDeletion:bool!
ManagedFieldsEntry: 1.manager 2.operation 3.apiVersion 4.time:Time 6.fieldsType
    7.fieldsV1:FieldsV1! 8.subresource
FieldsV1: 1.raw
DeleteOptions: 1.gracePeriodSeconds:int! 2.preconditions:Preconditions 3.orphanDependents:bool!
    4.propagationPolicy! 5.dryRun[] 6.ignoreStoreReadErrorWithClusterBreakingPotential:bool!
Preconditions: 1.uid! 2.resourceVersion!
Namespace: 1.metadata:ObjectMeta 2.spec:NamespaceSpec 3.status:NamespaceStatus
NamespaceSpec: 1.finalizers[]
NamespaceStatus: 1.phase 2.conditions:NamespaceCondition[]
NamespaceCondition: 1.type! 2.status! 4.lastTransitionTime:Time 5.reason 6.message
ConfigMap: 1.metadata:ObjectMeta 2.data{} 3.binaryData:bytes{} 4.immutable:bool!
Secret: 1.metadata:ObjectMeta 2.data:bytes{} 3.type 4.stringData{} 5.immutable:bool!
ServiceAccount: 1.metadata:ObjectMeta 2.secrets:ObjectReference[]
    3.imagePullSecrets:LocalObjectReference[] 4.automountServiceAccountToken:bool!
ObjectReference: 1.kind 2.namespace 3.name 4.uid 5.apiVersion 6.resourceVersion 7.fieldPath
LocalObjectReference: 1.name
Event: 1.metadata:ObjectMeta 2.involvedObject:ObjectReference 3.reason 4.message
    5.source:EventSource 6.firstTimestamp:Time 7.lastTimestamp:Time 8.count:int 9.type
    10.eventTime:MicroTime 11.series:EventSeries 12.action 13.related:ObjectReference
    14.reportingComponent! 15.reportingInstance!
EventSource: 1.component 2.host
MicroTime: 1.seconds:int! 2.nanos:int!
EventSeries: 1.count:int 2.lastObservedTime:MicroTime
EventsEvent: 1.metadata:ObjectMeta 2.eventTime:MicroTime 3.series:EventsEventSeries
    4.reportingController 5.reportingInstance 6.action 7.reason 8.regarding:ObjectReference
    9.related:ObjectReference 10.note 11.type 12.deprecatedSource:EventSource
    13.deprecatedFirstTimestamp:Time 14.deprecatedLastTimestamp:Time 15.deprecatedCount:int
EventsEventSeries: 1.count:int! 2.lastObservedTime:MicroTime
Lease: 1.metadata:ObjectMeta 2.spec:LeaseSpec
LeaseSpec: 1.holderIdentity! 2.leaseDurationSeconds:int! 3.acquireTime:MicroTime
    4.renewTime:MicroTime 5.leaseTransitions:int! 6.strategy! 7.preferredHolder!
Node: 1.metadata:ObjectMeta 2.spec:NodeSpec 3.status:NodeStatus
NodeSpec: 1.podCIDR 2.externalID 3.providerID 4.unschedulable:bool 5.taints:Taint[]
    6.configSource:NodeConfigSource 7.podCIDRs[]
Taint: 1.key! 2.value 3.effect! 4.timeAdded:Time
NodeConfigSource: 2.configMap:ConfigMapNodeConfigSource
ConfigMapNodeConfigSource: 1.namespace! 2.name! 3.uid 4.resourceVersion 5.kubeletConfigKey!
NodeStatus: 1.capacity:Quantity{} 2.allocatable:Quantity{} 3.phase 4.conditions:NodeCondition[]
    5.addresses:NodeAddress[] 6.daemonEndpoints:NodeDaemonEndpoints 7.nodeInfo:NodeSystemInfo
    8.images:ContainerImage[] 9.volumesInUse[] 10.volumesAttached:AttachedVolume[]
    11.config:NodeConfigStatus 12.runtimeHandlers:NodeRuntimeHandler[] 13.features:NodeFeatures
Quantity: 1.string
NodeCondition: 1.type! 2.status! 3.lastHeartbeatTime:Time 4.lastTransitionTime:Time 5.reason
    6.message
NodeAddress: 1.type! 2.address!
NodeDaemonEndpoints: 1.kubeletEndpoint:DaemonEndpoint
DaemonEndpoint: 1.Port:int!
NodeSystemInfo: 1.machineID! 2.systemUUID! 3.bootID! 4.kernelVersion! 5.osImage!
    6.containerRuntimeVersion! 7.kubeletVersion! 8.kubeProxyVersion! 9.operatingSystem!
    10.architecture!
ContainerImage: 1.names[] 2.sizeBytes:int
AttachedVolume: 1.name! 2.devicePath!
NodeConfigStatus: 1.assigned:NodeConfigSource 2.active:NodeConfigSource
    3.lastKnownGood:NodeConfigSource 4.error
NodeRuntimeHandler: 1.name! 2.features:NodeRuntimeHandlerFeatures
NodeRuntimeHandlerFeatures: 1.recursiveReadOnlyMounts:bool! 2.userNamespaces:bool!
NodeFeatures: 1.supplementalGroupsPolicy:bool!
Service: 1.metadata:ObjectMeta 2.spec:ServiceSpec 3.status:ServiceStatus
ServiceSpec: 1.ports:ServicePort[] 2.selector{} 3.clusterIP 4.type 5.externalIPs[]
    7.sessionAffinity 8.loadBalancerIP 9.loadBalancerSourceRanges[] 10.externalName
    11.externalTrafficPolicy 12.healthCheckNodePort:int 13.publishNotReadyAddresses:bool
    14.sessionAffinityConfig:SessionAffinityConfig 17.ipFamilyPolicy! 18.clusterIPs[]
    19.ipFamilies[] 20.allocateLoadBalancerNodePorts:bool! 21.loadBalancerClass!
    22.internalTrafficPolicy! 23.trafficDistribution!
ServicePort: 1.name 2.protocol 3.port:int! 4.targetPort:IntOrString! 5.nodePort:int 6.appProtocol!
IntOrString: 1.type:int 2.intVal:int 3.strVal
SessionAffinityConfig: 1.clientIP:ClientIPConfig
ClientIPConfig: 1.timeoutSeconds:int!
ServiceStatus: 1.loadBalancer:LoadBalancerStatus 2.conditions:Condition[]
LoadBalancerStatus: 1.ingress:LoadBalancerIngress[]
LoadBalancerIngress: 1.ip 2.hostname 3.ipMode! 4.ports:PortStatus[]
PortStatus: 1.port:int! 2.protocol! 3.error!
Condition: 1.type! 2.status! 3.observedGeneration:int 4.lastTransitionTime:Time 5.reason!
    6.message!
Pod: 1.metadata:ObjectMeta 2.spec:PodSpec 3.status:PodStatus
PodSpec: 1.volumes:Volume[] 2.containers:Container[] 3.restartPolicy
    4.terminationGracePeriodSeconds:int! 5.activeDeadlineSeconds:int! 6.dnsPolicy 7.nodeSelector{}
    8.serviceAccountName 9.serviceAccount 10.nodeName 11.hostNetwork:bool 12.hostPID:bool
    13.hostIPC:bool 14.securityContext:PodSecurityContext
    15.imagePullSecrets:LocalObjectReference[] 16.hostname 17.subdomain 18.affinity:Affinity
    19.schedulerName 20.initContainers:Container[] 21.automountServiceAccountToken:bool!
    22.tolerations:Toleration[] 23.hostAliases:HostAlias[] 24.priorityClassName 25.priority:int!
    26.dnsConfig:PodDNSConfig 27.shareProcessNamespace:bool! 28.readinessGates:PodReadinessGate[]
    29.runtimeClassName! 30.enableServiceLinks:bool! 31.preemptionPolicy! 32.overhead:Quantity{}
    33.topologySpreadConstraints:TopologySpreadConstraint[]
    34.ephemeralContainers:EphemeralContainer[] 35.setHostnameAsFQDN:bool! 36.os:PodOS
    37.hostUsers:bool! 38.schedulingGates:PodSchedulingGate[] 39.resourceClaims:PodResourceClaim[]
    40.resources:ResourceRequirements
Volume: 1.name! 2.:VolumeSource
VolumeSource: 1.hostPath:HostPathVolumeSource 2.emptyDir:EmptyDirVolumeSource
    3.gcePersistentDisk:GCEPersistentDiskVolumeSource
    4.awsElasticBlockStore:AWSElasticBlockStoreVolumeSource 5.gitRepo:GitRepoVolumeSource
    6.secret:SecretVolumeSource 7.nfs:NFSVolumeSource 8.iscsi:ISCSIVolumeSource
    9.glusterfs:GlusterfsVolumeSource 10.persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    11.rbd:RBDVolumeSource 12.flexVolume:FlexVolumeSource 13.cinder:CinderVolumeSource
    14.cephfs:CephFSVolumeSource 15.flocker:FlockerVolumeSource
    16.downwardAPI:DownwardAPIVolumeSource 17.fc:FCVolumeSource 18.azureFile:AzureFileVolumeSource
    19.configMap:ConfigMapVolumeSource 20.vsphereVolume:VsphereVirtualDiskVolumeSource
    21.quobyte:QuobyteVolumeSource 22.azureDisk:AzureDiskVolumeSource
    23.photonPersistentDisk:PhotonPersistentDiskVolumeSource 24.portworxVolume:PortworxVolumeSource
    25.scaleIO:ScaleIOVolumeSource 26.projected:ProjectedVolumeSource
    27.storageos:StorageOSVolumeSource 28.csi:CSIVolumeSource 29.ephemeral:EphemeralVolumeSource
    30.image:ImageVolumeSource
HostPathVolumeSource: 1.path! 2.type!
EmptyDirVolumeSource: 1.medium 2.sizeLimit:Quantity
GCEPersistentDiskVolumeSource: 1.pdName! 2.fsType 3.partition:int 4.readOnly:bool
AWSElasticBlockStoreVolumeSource: 1.volumeID! 2.fsType 3.partition:int 4.readOnly:bool
GitRepoVolumeSource: 1.repository! 2.revision 3.directory
SecretVolumeSource: 1.secretName 2.items:KeyToPath[] 3.defaultMode:int! 4.optional:bool!
KeyToPath: 1.key! 2.path! 3.mode:int!
NFSVolumeSource: 1.server! 2.path! 3.readOnly:bool
ISCSIVolumeSource: 1.targetPortal! 2.iqn! 3.lun:int! 4.iscsiInterface 5.fsType 6.readOnly:bool
    7.portals[] 8.chapAuthDiscovery:bool 10.secretRef:LocalObjectReference 11.chapAuthSession:bool
    12.initiatorName!
GlusterfsVolumeSource: 1.endpoints! 2.path! 3.readOnly:bool
PersistentVolumeClaimVolumeSource: 1.claimName! 2.readOnly:bool
RBDVolumeSource: 1.monitors[] 2.image! 3.fsType 4.pool 5.user 6.keyring
    7.secretRef:LocalObjectReference 8.readOnly:bool
FlexVolumeSource: 1.driver! 2.fsType 3.secretRef:LocalObjectReference 4.readOnly:bool 5.options{}
CinderVolumeSource: 1.volumeID! 2.fsType 3.readOnly:bool 4.secretRef:LocalObjectReference
CephFSVolumeSource: 1.monitors[] 2.path 3.user 4.secretFile 5.secretRef:LocalObjectReference
    6.readOnly:bool
FlockerVolumeSource: 1.datasetName 2.datasetUUID
DownwardAPIVolumeSource: 1.items:DownwardAPIVolumeFile[] 2.defaultMode:int!
DownwardAPIVolumeFile: 1.path! 2.fieldRef:ObjectFieldSelector
    3.resourceFieldRef:ResourceFieldSelector 4.mode:int!
ObjectFieldSelector: 1.apiVersion 2.fieldPath!
ResourceFieldSelector: 1.containerName 2.resource! 3.divisor:Quantity
FCVolumeSource: 1.targetWWNs[] 2.lun:int! 3.fsType 4.readOnly:bool 5.wwids[]
AzureFileVolumeSource: 1.secretName! 2.shareName! 3.readOnly:bool
ConfigMapVolumeSource: 1.:LocalObjectReference 2.items:KeyToPath[] 3.defaultMode:int!
    4.optional:bool!
VsphereVirtualDiskVolumeSource: 1.volumePath! 2.fsType 3.storagePolicyName 4.storagePolicyID
QuobyteVolumeSource: 1.registry! 2.volume! 3.readOnly:bool 4.user 5.group 6.tenant
AzureDiskVolumeSource: 1.diskName! 2.diskURI! 3.cachingMode! 4.fsType! 5.readOnly:bool! 6.kind!
PhotonPersistentDiskVolumeSource: 1.pdID! 2.fsType
PortworxVolumeSource: 1.volumeID! 2.fsType 3.readOnly:bool
ScaleIOVolumeSource: 1.gateway! 2.system! 3.secretRef:LocalObjectReference 4.sslEnabled:bool
    5.protectionDomain 6.storagePool 7.storageMode 8.volumeName 9.fsType 10.readOnly:bool
ProjectedVolumeSource: 1.sources:VolumeProjection[] 2.defaultMode:int!
VolumeProjection: 1.secret:SecretProjection 2.downwardAPI:DownwardAPIProjection
    3.configMap:ConfigMapProjection 4.serviceAccountToken:ServiceAccountTokenProjection
    5.clusterTrustBundle:ClusterTrustBundleProjection
SecretProjection: 1.:LocalObjectReference 2.items:KeyToPath[] 4.optional:bool!
DownwardAPIProjection: 1.items:DownwardAPIVolumeFile[]
ConfigMapProjection: 1.:LocalObjectReference 2.items:KeyToPath[] 4.optional:bool!
ServiceAccountTokenProjection: 1.audience 2.expirationSeconds:int! 3.path!
ClusterTrustBundleProjection: 1.name! 2.signerName! 3.labelSelector:LabelSelector 4.path!
    5.optional:bool!
LabelSelector: 1.matchLabels{} 2.matchExpressions:LabelSelectorRequirement[]
LabelSelectorRequirement: 1.key! 2.operator! 3.values[]
StorageOSVolumeSource: 1.volumeName 2.volumeNamespace 3.fsType 4.readOnly:bool
    5.secretRef:LocalObjectReference
CSIVolumeSource: 1.driver! 2.readOnly:bool! 3.fsType! 4.volumeAttributes{}
    5.nodePublishSecretRef:LocalObjectReference
EphemeralVolumeSource: 1.volumeClaimTemplate:PersistentVolumeClaimTemplate
PersistentVolumeClaimTemplate: 1.metadata:ObjectMeta 2.spec:PersistentVolumeClaimSpec
PersistentVolumeClaimSpec: 1.accessModes[] 2.resources:VolumeResourceRequirements 3.volumeName
    4.selector:LabelSelector 5.storageClassName! 6.volumeMode!
    7.dataSource:TypedLocalObjectReference 8.dataSourceRef:TypedObjectReference
    9.volumeAttributesClassName!
VolumeResourceRequirements: 1.limits:Quantity{} 2.requests:Quantity{}
TypedLocalObjectReference: 1.apiGroup! 2.kind! 3.name!
TypedObjectReference: 1.apiGroup! 2.kind! 3.name! 4.namespace!
ImageVolumeSource: 1.reference 2.pullPolicy
Container: 1.name! 2.image 3.command[] 4.args[] 5.workingDir 6.ports:ContainerPort[] 7.env:EnvVar[]
    8.resources:ResourceRequirements 9.volumeMounts:VolumeMount[] 10.livenessProbe:Probe
    11.readinessProbe:Probe 12.lifecycle:Lifecycle 13.terminationMessagePath 14.imagePullPolicy
    15.securityContext:SecurityContext 16.stdin:bool 17.stdinOnce:bool 18.tty:bool
    19.envFrom:EnvFromSource[] 20.terminationMessagePolicy 21.volumeDevices:VolumeDevice[]
    22.startupProbe:Probe 23.resizePolicy:ContainerResizePolicy[] 24.restartPolicy!
ContainerPort: 1.name 2.hostPort:int 3.containerPort:int! 4.protocol 5.hostIP
EnvVar: 1.name! 2.value 3.valueFrom:EnvVarSource
EnvVarSource: 1.fieldRef:ObjectFieldSelector 2.resourceFieldRef:ResourceFieldSelector
    3.configMapKeyRef:ConfigMapKeySelector 4.secretKeyRef:SecretKeySelector
ConfigMapKeySelector: 1.:LocalObjectReference 2.key! 3.optional:bool!
SecretKeySelector: 1.:LocalObjectReference 2.key! 3.optional:bool!
ResourceRequirements: 1.limits:Quantity{} 2.requests:Quantity{} 3.claims:ResourceClaim[]
ResourceClaim: 1.name! 2.request
VolumeMount: 1.name! 2.readOnly:bool 3.mountPath! 4.subPath 5.mountPropagation! 6.subPathExpr
    7.recursiveReadOnly!
Probe: 1.:ProbeHandler 2.initialDelaySeconds:int 3.timeoutSeconds:int 4.periodSeconds:int
    5.successThreshold:int 6.failureThreshold:int 7.terminationGracePeriodSeconds:int!
ProbeHandler: 1.exec:ExecAction 2.httpGet:HTTPGetAction 3.tcpSocket:TCPSocketAction
    4.grpc:GRPCAction
ExecAction: 1.command[]
HTTPGetAction: 1.path 2.port:IntOrString! 3.host 4.scheme 5.httpHeaders:HTTPHeader[]
HTTPHeader: 1.name! 2.value!
TCPSocketAction: 1.port:IntOrString! 2.host
GRPCAction: 1.port:int! 2.service!
Lifecycle: 1.postStart:LifecycleHandler 2.preStop:LifecycleHandler
LifecycleHandler: 1.exec:ExecAction 2.httpGet:HTTPGetAction 3.tcpSocket:TCPSocketAction
    4.sleep:SleepAction
SleepAction: 1.seconds:int!
SecurityContext: 1.capabilities:Capabilities 2.privileged:bool! 3.seLinuxOptions:SELinuxOptions
    4.runAsUser:int! 5.runAsNonRoot:bool! 6.readOnlyRootFilesystem:bool!
    7.allowPrivilegeEscalation:bool! 8.runAsGroup:int! 9.procMount!
    10.windowsOptions:WindowsSecurityContextOptions 11.seccompProfile:SeccompProfile
    12.appArmorProfile:AppArmorProfile
Capabilities: 1.add[] 2.drop[]
SELinuxOptions: 1.user 2.role 3.type 4.level
WindowsSecurityContextOptions: 1.gmsaCredentialSpecName! 2.gmsaCredentialSpec! 3.runAsUserName!
    4.hostProcess:bool!
SeccompProfile: 1.type! 2.localhostProfile!
AppArmorProfile: 1.type! 2.localhostProfile!
EnvFromSource: 1.prefix 2.configMapRef:ConfigMapEnvSource 3.secretRef:SecretEnvSource
ConfigMapEnvSource: 1.:LocalObjectReference 2.optional:bool!
SecretEnvSource: 1.:LocalObjectReference 2.optional:bool!
VolumeDevice: 1.name! 2.devicePath!
ContainerResizePolicy: 1.resourceName! 2.restartPolicy!
PodSecurityContext: 1.seLinuxOptions:SELinuxOptions 2.runAsUser:int! 3.runAsNonRoot:bool!
    4.supplementalGroups:int[] 5.fsGroup:int! 6.runAsGroup:int! 7.sysctls:Sysctl[]
    8.windowsOptions:WindowsSecurityContextOptions 9.fsGroupChangePolicy!
    10.seccompProfile:SeccompProfile 11.appArmorProfile:AppArmorProfile
    12.supplementalGroupsPolicy! 13.seLinuxChangePolicy!
Sysctl: 1.name! 2.value!
Affinity: 1.nodeAffinity:NodeAffinity 2.podAffinity:PodAffinity 3.podAntiAffinity:PodAntiAffinity
NodeAffinity: 1.requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
    2.preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm[]
NodeSelector: 1.nodeSelectorTerms:NodeSelectorTerm[]
NodeSelectorTerm: 1.matchExpressions:NodeSelectorRequirement[]
    2.matchFields:NodeSelectorRequirement[]
NodeSelectorRequirement: 1.key! 2.operator! 3.values[]
PreferredSchedulingTerm: 1.weight:int! 2.preference:NodeSelectorTerm
PodAffinity: 1.requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm[]
    2.preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm[]
PodAffinityTerm: 1.labelSelector:LabelSelector 2.namespaces[] 3.topologyKey!
    4.namespaceSelector:LabelSelector 5.matchLabelKeys[] 6.mismatchLabelKeys[]
WeightedPodAffinityTerm: 1.weight:int! 2.podAffinityTerm:PodAffinityTerm
PodAntiAffinity: 1.requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm[]
    2.preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm[]
Toleration: 1.key 2.operator 3.value 4.effect 5.tolerationSeconds:int!
HostAlias: 1.ip! 2.hostnames[]
PodDNSConfig: 1.nameservers[] 2.searches[] 3.options:PodDNSConfigOption[]
PodDNSConfigOption: 1.name 2.value!
PodReadinessGate: 1.conditionType!
TopologySpreadConstraint: 1.maxSkew:int! 2.topologyKey! 3.whenUnsatisfiable!
    4.labelSelector:LabelSelector 5.minDomains:int! 6.nodeAffinityPolicy! 7.nodeTaintsPolicy!
    8.matchLabelKeys[]
EphemeralContainer: 1.:EphemeralContainerCommon 2.targetContainerName
EphemeralContainerCommon: 1.name! 2.image 3.command[] 4.args[] 5.workingDir 6.ports:ContainerPort[]
    7.env:EnvVar[] 8.resources:ResourceRequirements 9.volumeMounts:VolumeMount[]
    10.livenessProbe:Probe 11.readinessProbe:Probe 12.lifecycle:Lifecycle 13.terminationMessagePath
    14.imagePullPolicy 15.securityContext:SecurityContext 16.stdin:bool 17.stdinOnce:bool
    18.tty:bool 19.envFrom:EnvFromSource[] 20.terminationMessagePolicy
    21.volumeDevices:VolumeDevice[] 22.startupProbe:Probe 23.resizePolicy:ContainerResizePolicy[]
    24.restartPolicy!
PodOS: 1.name!
PodSchedulingGate: 1.name!
PodResourceClaim: 1.name! 3.resourceClaimName! 4.resourceClaimTemplateName!
PodStatus: 1.phase 2.conditions:PodCondition[] 3.message 4.reason 5.hostIP 6.podIP 7.startTime:Time
    8.containerStatuses:ContainerStatus[] 9.qosClass 10.initContainerStatuses:ContainerStatus[]
    11.nominatedNodeName 12.podIPs:PodIP[] 13.ephemeralContainerStatuses:ContainerStatus[]
    14.resize 15.resourceClaimStatuses:PodResourceClaimStatus[] 16.hostIPs:HostIP[]
PodCondition: 1.type! 2.status! 3.lastProbeTime:Time 4.lastTransitionTime:Time 5.reason 6.message
ContainerStatus: 1.name! 2.state:ContainerState 3.lastState:ContainerState 4.ready:bool!
    5.restartCount:int! 6.image! 7.imageID! 8.containerID 9.started:bool!
    10.allocatedResources:Quantity{} 11.resources:ResourceRequirements
    12.volumeMounts:VolumeMountStatus[] 13.user:ContainerUser
    14.allocatedResourcesStatus:ResourceStatus[]
ContainerState: 1.waiting:ContainerStateWaiting 2.running:ContainerStateRunning
    3.terminated:ContainerStateTerminated
ContainerStateWaiting: 1.reason 2.message
ContainerStateRunning: 1.startedAt:Time
ContainerStateTerminated: 1.exitCode:int! 2.signal:int 3.reason 4.message 5.startedAt:Time
    6.finishedAt:Time 7.containerID
VolumeMountStatus: 1.name! 2.mountPath! 3.readOnly:bool 4.recursiveReadOnly!
ContainerUser: 1.linux:LinuxContainerUser
LinuxContainerUser: 1.uid:int! 2.gid:int! 3.supplementalGroups:int[]
ResourceStatus: 1.name! 2.resources:ResourceHealth[]
ResourceHealth: 1.resourceID! 2.health
PodIP: 1.ip!
PodResourceClaimStatus: 1.name! 2.resourceClaimName!
HostIP: 1.ip!
Eviction: 1.metadata:ObjectMeta 2.deleteOptions:DeleteOptions
Job: 1.metadata:ObjectMeta 2.spec:JobSpec 3.status:JobStatus
JobSpec: 1.parallelism:int! 2.completions:int! 3.activeDeadlineSeconds:int!
    4.selector:LabelSelector 5.manualSelector:bool! 6.template:PodTemplateSpec 7.backoffLimit:int!
    8.ttlSecondsAfterFinished:int! 9.completionMode! 10.suspend:bool!
    11.podFailurePolicy:PodFailurePolicy 12.backoffLimitPerIndex:int! 13.maxFailedIndexes:int!
    14.podReplacementPolicy! 15.managedBy! 16.successPolicy:SuccessPolicy
PodTemplateSpec: 1.metadata:ObjectMeta 2.spec:PodSpec
PodFailurePolicy: 1.rules:PodFailurePolicyRule[]
PodFailurePolicyRule: 1.action! 2.onExitCodes:PodFailurePolicyOnExitCodesRequirement
    3.onPodConditions:PodFailurePolicyOnPodConditionsPattern[]
PodFailurePolicyOnExitCodesRequirement: 1.containerName! 2.operator! 3.values:int[]
PodFailurePolicyOnPodConditionsPattern: 1.type! 2.status!
SuccessPolicy: 1.rules:SuccessPolicyRule[]
SuccessPolicyRule: 1.succeededIndexes! 2.succeededCount:int!
JobStatus: 1.conditions:JobCondition[] 2.startTime:Time 3.completionTime:Time 4.active:int
    5.succeeded:int 6.failed:int 7.completedIndexes
    8.uncountedTerminatedPods:UncountedTerminatedPods 9.ready:int! 10.failedIndexes!
    11.terminating:int!
JobCondition: 1.type! 2.status! 3.lastProbeTime:Time 4.lastTransitionTime:Time 5.reason 6.message
UncountedTerminatedPods: 1.succeeded[] 2.failed[]
ValidatingWebhookConfiguration: 1.metadata:ObjectMeta 2.webhooks:ValidatingWebhook[]
ValidatingWebhook: 1.name! 2.clientConfig:WebhookClientConfig 3.rules:RuleWithOperations[]
    4.failurePolicy! 5.namespaceSelector:LabelSelector 6.sideEffects! 7.timeoutSeconds:int!
    8.admissionReviewVersions[] 9.matchPolicy! 10.objectSelector:LabelSelector
    11.matchConditions:MatchCondition[]
WebhookClientConfig: 1.service:ServiceReference 2.caBundle:bytes 3.url!
ServiceReference: 1.namespace! 2.name! 3.path! 4.port:int!
RuleWithOperations: 1.operations[] 2.:Rule
Rule: 1.apiGroups[] 2.apiVersions[] 3.resources[] 4.scope!
MatchCondition: 1.name! 2.expression!
MutatingWebhookConfiguration: 1.metadata:ObjectMeta 2.webhooks:MutatingWebhook[]
MutatingWebhook: 1.name! 2.clientConfig:WebhookClientConfig 3.rules:RuleWithOperations[]
    4.failurePolicy! 5.namespaceSelector:LabelSelector 6.sideEffects! 7.timeoutSeconds:int!
    8.admissionReviewVersions[] 9.matchPolicy! 10.reinvocationPolicy!
    11.objectSelector:LabelSelector 12.matchConditions:MatchCondition[]
Role: 1.metadata:ObjectMeta 2.rules:PolicyRule[]
PolicyRule: 1.verbs[] 2.apiGroups[] 3.resources[] 4.resourceNames[] 5.nonResourceURLs[]
ClusterRole: 1.metadata:ObjectMeta 2.rules:PolicyRule[] 3.aggregationRule:AggregationRule
AggregationRule: 1.clusterRoleSelectors:LabelSelector[]
RoleBinding: 1.metadata:ObjectMeta 2.subjects:Subject[] 3.roleRef:RoleRef
Subject: 1.kind! 2.apiGroup 3.name! 4.namespace
RoleRef: 1.apiGroup! 2.kind! 3.name!
ClusterRoleBinding: 1.metadata:ObjectMeta 2.subjects:Subject[] 3.roleRef:RoleRef
SelfSubjectAccessReview: 1.metadata:ObjectMeta 2.spec:SelfSubjectAccessReviewSpec
    3.status:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec: 1.resourceAttributes:ResourceAttributes
    2.nonResourceAttributes:NonResourceAttributes
ResourceAttributes: 1.namespace 2.verb 3.group 4.version 5.resource 6.subresource 7.name
    8.fieldSelector:FieldSelectorAttributes 9.labelSelector:LabelSelectorAttributes
FieldSelectorAttributes: 1.rawSelector 2.requirements:FieldSelectorRequirement[]
FieldSelectorRequirement: 1.key! 2.operator! 3.values[]
LabelSelectorAttributes: 1.rawSelector 2.requirements:LabelSelectorRequirement[]
NonResourceAttributes: 1.path 2.verb
SubjectAccessReviewStatus: 1.allowed:bool! 2.reason 3.evaluationError 4.denied:bool
SubjectAccessReview: 1.metadata:ObjectMeta 2.spec:SubjectAccessReviewSpec
    3.status:SubjectAccessReviewStatus
SubjectAccessReviewSpec: 1.resourceAttributes:ResourceAttributes
    2.nonResourceAttributes:NonResourceAttributes 3.user 4.groups[] 5.extra:ExtraValue{} 6.uid
ExtraValue: 1.items[]
LocalSubjectAccessReview: 1.metadata:ObjectMeta 2.spec:SubjectAccessReviewSpec
    3.status:SubjectAccessReviewStatus
SelfSubjectRulesReview: 1.metadata:ObjectMeta 2.spec:SelfSubjectRulesReviewSpec
    3.status:SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec: 1.namespace
SubjectRulesReviewStatus: 1.resourceRules:ResourceRule[] 2.nonResourceRules:NonResourceRule[]
    3.incomplete:bool! 4.evaluationError
ResourceRule: 1.verbs[] 2.apiGroups[] 3.resources[] 4.resourceNames[]
NonResourceRule: 1.verbs[] 2.nonResourceURLs[]
SelfSubjectReview: 1.metadata:ObjectMeta 2.status:SelfSubjectReviewStatus
SelfSubjectReviewStatus: 1.userInfo:UserInfo
UserInfo: 1.username 2.uid 3.groups[] 4.extra:ExtraValue{}
TokenRequest: 1.metadata:ObjectMeta 2.spec:TokenRequestSpec 3.status:TokenRequestStatus
TokenRequestSpec: 1.audiences[] 3.boundObjectRef:BoundObjectReference 4.expirationSeconds:int!
BoundObjectReference: 1.kind 2.apiVersion 3.name 4.uid
TokenRequestStatus: 1.token! 2.expirationTimestamp:Time
TokenReview: 1.metadata:ObjectMeta 2.spec:TokenReviewSpec 3.status:TokenReviewStatus
TokenReviewSpec: 1.token 2.audiences[]
TokenReviewStatus: 1.authenticated:bool 2.user:UserInfo 3.error 4.audiences[]
"""


def _parse(table: str) -> dict[str, dict[int, Field]]:
    """Read the table. No message is within itself, so that its depth bounds what is read."""
    messages: dict[str, dict[int, Field]] = {}
    for word in table.split():
        if word.endswith(":"):
            fields = messages[word[:-1]] = {}
        elif match := _FIELD_PATTERN.fullmatch(word):
            number, name, type_name, collection, keeps_zero = match.groups(default="")
            fields[int(number)] = Field(name, type_name or "string", collection, bool(keeps_zero))
        else:
            raise ValueError(f"{word!r} is no field")
    return messages


MESSAGES: Final = _parse(_TABLE)
