//! Upstream's internal types, as far as their values are shown in messages.
//!
//! They have no JSON names: what is printed are the fields of Go structs, all of them, in their order. A row is a type
//! and its fields. A field is its Go name, and after a slash its JSON name where that is not the Go name with a small
//! first letter; then what it is: `?` something that prints as in the API, or `null`; `#` a number, `!` a flag, `~` a
//! quantity, `@` a label selector; `*T` a pointer to a type, `=T` a value of it, `[T]` a list; a text otherwise. `+T`
//! has the fields of another type.
//! Source: `pkg/apis/core/types.go`.

/// Type and fields.
pub(super) const TYPES: &[(&str, &str)] = &[
    ("AWSElasticBlockStoreVolumeSource", "VolumeID FSType/fsType Partition# ReadOnly!"),
    ("Affinity", "NodeAffinity*NodeAffinity PodAffinity*PodAffinity PodAntiAffinity*PodAntiAffinity"),
    ("AppArmorProfile", "Type LocalhostProfile?"),
    ("AzureDiskVolumeSource", "DiskName DataDiskURI/diskURI CachingMode? FSType/fsType? ReadOnly? Kind?"),
    ("AzureFilePersistentVolumeSource", "SecretName ShareName ReadOnly! SecretNamespace?"),
    ("AzureFileVolumeSource", "SecretName ShareName ReadOnly!"),
    ("CSINodeDriver", "Name NodeID/nodeID TopologyKeys? Allocatable?"),
    (
        "CSIPersistentVolumeSource",
        "Driver VolumeHandle ReadOnly! FSType/fsType VolumeAttributes? \
         ControllerPublishSecretRef*SecretReference NodeStageSecretRef*SecretReference \
         NodePublishSecretRef*SecretReference ControllerExpandSecretRef*SecretReference \
         NodeExpandSecretRef*SecretReference",
    ),
    (
        "CSIVolumeSource",
        "Driver ReadOnly? FSType/fsType? VolumeAttributes? NodePublishSecretRef*LocalObjectReference",
    ),
    ("Capabilities", "Add? Drop?"),
    ("CephFSPersistentVolumeSource", "Monitors? Path User SecretFile SecretRef*SecretReference ReadOnly!"),
    ("CephFSVolumeSource", "Monitors? Path User SecretFile SecretRef*LocalObjectReference ReadOnly!"),
    ("CinderPersistentVolumeSource", "VolumeID FSType/fsType ReadOnly! SecretRef*SecretReference"),
    ("CinderVolumeSource", "VolumeID FSType/fsType ReadOnly! SecretRef*LocalObjectReference"),
    ("ClusterTrustBundleProjection", "Name? SignerName? LabelSelector@ Optional? Path"),
    ("ConfigMapEnvSource", "+LocalObjectReference Optional?"),
    ("ConfigMapKeySelector", "+LocalObjectReference Key Optional?"),
    ("ConfigMapProjection", "+LocalObjectReference Items[KeyToPath] Optional?"),
    ("ConfigMapVolumeSource", "+LocalObjectReference Items[KeyToPath] DefaultMode? Optional?"),
    (
        "Container",
        "Name Image Command? Args? WorkingDir Ports[ContainerPort] EnvFrom[EnvFromSource] Env[EnvVar] \
         Resources=ResourceRequirements ResizePolicy[ContainerResizePolicy] RestartPolicy? \
         RestartPolicyRules[ContainerRestartRule] VolumeMounts[VolumeMount] VolumeDevices[VolumeDevice] \
         LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle \
         TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext*SecurityContext \
         Stdin! StdinOnce! TTY/tty!",
    ),
    ("ContainerPort", "Name HostPort# ContainerPort# Protocol HostIP"),
    ("ContainerResizePolicy", "ResourceName RestartPolicy"),
    ("ContainerRestartRule", "Action ExitCodes*ContainerRestartRuleOnExitCodes"),
    ("ContainerRestartRuleOnExitCodes", "Operator Values?"),
    ("DaemonSetUpdateStrategy", "Type RollingUpdate*RollingUpdateDeployment"),
    ("DeploymentStrategy", "Type RollingUpdate*RollingUpdateDeployment"),
    ("DownwardAPIProjection", "Items[DownwardAPIVolumeFile]"),
    (
        "DownwardAPIVolumeFile",
        "Path FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector Mode?",
    ),
    ("DownwardAPIVolumeSource", "Items[DownwardAPIVolumeFile] DefaultMode?"),
    ("EmptyDirVolumeSource", "Medium SizeLimit?"),
    ("EnvFromSource", "Prefix ConfigMapRef*ConfigMapEnvSource SecretRef*SecretEnvSource"),
    ("EnvVar", "Name Value ValueFrom*EnvVarSource"),
    (
        "EnvVarSource",
        "FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector \
         ConfigMapKeyRef*ConfigMapKeySelector SecretKeyRef*SecretKeySelector FileKeyRef*FileKeySelector",
    ),
    ("EphemeralContainer", "+EphemeralContainerCommon TargetContainerName"),
    (
        "EphemeralContainerCommon",
        "Name Image Command? Args? WorkingDir Ports[ContainerPort] EnvFrom[EnvFromSource] Env[EnvVar] \
         Resources=ResourceRequirements ResizePolicy[ContainerResizePolicy] RestartPolicy? \
         RestartPolicyRules[ContainerRestartRule] VolumeMounts[VolumeMount] VolumeDevices[VolumeDevice] \
         LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle \
         TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext*SecurityContext \
         Stdin! StdinOnce! TTY/tty!",
    ),
    ("EphemeralVolumeSource", "VolumeClaimTemplate*PersistentVolumeClaimTemplate"),
    ("ExecAction", "Command?"),
    ("FCVolumeSource", "TargetWWNs? Lun? FSType/fsType ReadOnly! WWIDs/wwids?"),
    ("FileKeySelector", "VolumeName Path Key Optional?"),
    ("FlexPersistentVolumeSource", "Driver FSType/fsType SecretRef*SecretReference ReadOnly! Options?"),
    ("FlexVolumeSource", "Driver FSType/fsType SecretRef*LocalObjectReference ReadOnly! Options?"),
    ("FlockerVolumeSource", "DatasetName DatasetUUID"),
    ("GCEPersistentDiskVolumeSource", "PDName/pdName FSType/fsType Partition# ReadOnly!"),
    ("GRPCAction", "Port# Service?"),
    ("GitRepoVolumeSource", "Repository Revision Directory"),
    ("GlusterfsPersistentVolumeSource", "EndpointsName/endpoints Path ReadOnly! EndpointsNamespace?"),
    ("GlusterfsVolumeSource", "EndpointsName/endpoints Path ReadOnly!"),
    ("HTTPGetAction", "Path Port# Host Scheme HTTPHeaders/httpHeaders[HTTPHeader]"),
    ("HTTPHeader", "Name Value"),
    ("HostAlias", "IP/ip Hostnames?"),
    ("HostPathVolumeSource", "Path Type?"),
    (
        "ISCSIPersistentVolumeSource",
        "TargetPortal IQN/iqn Lun# ISCSIInterface/iscsiInterface FSType/fsType ReadOnly! Portals? \
         DiscoveryCHAPAuth/chapAuthDiscovery! SessionCHAPAuth/chapAuthSession! SecretRef*SecretReference \
         InitiatorName?",
    ),
    (
        "ISCSIVolumeSource",
        "TargetPortal IQN/iqn Lun# ISCSIInterface/iscsiInterface FSType/fsType ReadOnly! Portals? \
         DiscoveryCHAPAuth/chapAuthDiscovery! SessionCHAPAuth/chapAuthSession! SecretRef*LocalObjectReference \
         InitiatorName?",
    ),
    ("ImageVolumeSource", "Reference PullPolicy"),
    ("KeyToPath", "Key Path Mode?"),
    ("Lifecycle", "PostStart*LifecycleHandler PreStop*LifecycleHandler StopSignal?"),
    (
        "LifecycleHandler",
        "Exec*ExecAction HTTPGet/httpGet*HTTPGetAction TCPSocket/tcpSocket*TCPSocketAction Sleep*SleepAction",
    ),
    ("LocalObjectReference", "Name"),
    ("LocalVolumeSource", "Path FSType/fsType?"),
    ("NFSVolumeSource", "Server Path ReadOnly!"),
    ("NodeAddress", "Type Address"),
    (
        "NodeAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution*NodeSelector \
         PreferredDuringSchedulingIgnoredDuringExecution[PreferredSchedulingTerm]",
    ),
    ("NodeSelector", "NodeSelectorTerms[NodeSelectorTerm]"),
    ("NodeSelectorRequirement", "Key Operator Values?"),
    ("NodeSelectorTerm", "MatchExpressions[NodeSelectorRequirement] MatchFields[NodeSelectorRequirement]"),
    ("NonResourceAttributes", "Path Verb"),
    ("ObjectFieldSelector", "APIVersion/apiVersion FieldPath"),
    ("ObjectReference", "Kind Namespace Name UID/uid APIVersion/apiVersion ResourceVersion FieldPath"),
    (
        "PersistentVolumeClaimSpec",
        "AccessModes? Selector@ Resources=VolumeResourceRequirements VolumeName StorageClassName? VolumeMode? \
         DataSource*TypedLocalObjectReference DataSourceRef*TypedObjectReference VolumeAttributesClassName?",
    ),
    ("PersistentVolumeClaimTemplate", "+ObjectMeta Spec=PersistentVolumeClaimSpec"),
    ("PersistentVolumeClaimVolumeSource", "ClaimName ReadOnly!"),
    (
        "PersistentVolumeSource",
        "GCEPersistentDisk/gcePersistentDisk*GCEPersistentDiskVolumeSource \
         AWSElasticBlockStore/awsElasticBlockStore*AWSElasticBlockStoreVolumeSource \
         HostPath*HostPathVolumeSource Glusterfs*GlusterfsPersistentVolumeSource NFS/nfs*NFSVolumeSource \
         RBD/rbd*RBDPersistentVolumeSource Quobyte*QuobyteVolumeSource \
         ISCSI/iscsi*ISCSIPersistentVolumeSource FlexVolume*FlexPersistentVolumeSource \
         Cinder*CinderPersistentVolumeSource CephFS/cephfs*CephFSPersistentVolumeSource FC/fc*FCVolumeSource \
         Flocker*FlockerVolumeSource AzureFile*AzureFilePersistentVolumeSource \
         VsphereVolume*VsphereVirtualDiskVolumeSource AzureDisk*AzureDiskVolumeSource \
         PhotonPersistentDisk*PhotonPersistentDiskVolumeSource PortworxVolume*PortworxVolumeSource \
         ScaleIO*ScaleIOPersistentVolumeSource Local*LocalVolumeSource \
         StorageOS/storageos*StorageOSPersistentVolumeSource CSI/csi*CSIPersistentVolumeSource",
    ),
    (
        "PersistentVolumeSpec",
        "Capacity? +PersistentVolumeSource AccessModes? ClaimRef*ObjectReference \
         PersistentVolumeReclaimPolicy StorageClassName MountOptions? VolumeMode? \
         NodeAffinity*VolumeNodeAffinity VolumeAttributesClassName?",
    ),
    ("PhotonPersistentDiskVolumeSource", "PdID FSType/fsType"),
    (
        "PodAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution[PodAffinityTerm] \
         PreferredDuringSchedulingIgnoredDuringExecution[WeightedPodAffinityTerm]",
    ),
    (
        "PodAffinityTerm",
        "LabelSelector@ Namespaces? TopologyKey NamespaceSelector@ MatchLabelKeys? MismatchLabelKeys?",
    ),
    (
        "PodAntiAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution[PodAffinityTerm] \
         PreferredDuringSchedulingIgnoredDuringExecution[WeightedPodAffinityTerm]",
    ),
    (
        "PodCertificateProjection",
        "SignerName KeyType MaxExpirationSeconds? CredentialBundlePath KeyPath CertificateChainPath \
         UserAnnotations?",
    ),
    ("PodDNSConfig", "Nameservers? Searches? Options[PodDNSConfigOption]"),
    ("PodDNSConfigOption", "Name Value?"),
    ("PodDisruptionBudgetSpec", "MinAvailable? Selector@ MaxUnavailable? UnhealthyPodEvictionPolicy?"),
    ("PodFailurePolicy", "Rules[PodFailurePolicyRule]"),
    ("PodFailurePolicyOnExitCodesRequirement", "ContainerName? Operator Values?"),
    ("PodFailurePolicyOnPodConditionsPattern", "Type Status"),
    (
        "PodFailurePolicyRule",
        "Action OnExitCodes*PodFailurePolicyOnExitCodesRequirement \
         OnPodConditions[PodFailurePolicyOnPodConditionsPattern]",
    ),
    ("PodOS", "Name"),
    ("PodReadinessGate", "ConditionType"),
    ("PodResourceClaim", "Name ResourceClaimName? ResourceClaimTemplateName?"),
    ("PodSchedulingGate", "Name"),
    (
        "PodSecurityContext",
        "HostNetwork! HostPID! HostIPC! ShareProcessNamespace? HostUsers? \
         SELinuxOptions/seLinuxOptions*SELinuxOptions WindowsOptions*WindowsSecurityContextOptions RunAsUser? \
         RunAsGroup? RunAsNonRoot? SupplementalGroups? SupplementalGroupsPolicy? FSGroup/fsGroup? \
         FSGroupChangePolicy/fsGroupChangePolicy? Sysctls[Sysctl] SeccompProfile*SeccompProfile \
         AppArmorProfile*AppArmorProfile SELinuxChangePolicy/seLinuxChangePolicy?",
    ),
    (
        "PodSpec",
        "Volumes[Volume] InitContainers[Container] Containers[Container] \
         EphemeralContainers[EphemeralContainer] RestartPolicy TerminationGracePeriodSeconds? \
         ActiveDeadlineSeconds? DNSPolicy/dnsPolicy NodeSelector? ServiceAccountName \
         AutomountServiceAccountToken? NodeName SecurityContext*PodSecurityContext \
         ImagePullSecrets[LocalObjectReference] Hostname Subdomain SetHostnameAsFQDN? Affinity*Affinity \
         SchedulerName Tolerations[Toleration] HostAliases[HostAlias] PriorityClassName Priority? \
         PreemptionPolicy? DNSConfig/dnsConfig*PodDNSConfig ReadinessGates[PodReadinessGate] \
         RuntimeClassName? Overhead? EnableServiceLinks? TopologySpreadConstraints[TopologySpreadConstraint] \
         OS/os*PodOS SchedulingGates[PodSchedulingGate] ResourceClaims[PodResourceClaim] \
         Resources*ResourceRequirements HostnameOverride? WorkloadRef*WorkloadReference",
    ),
    ("PortworxVolumeSource", "VolumeID FSType/fsType ReadOnly!"),
    ("PreferredSchedulingTerm", "Weight# Preference=NodeSelectorTerm"),
    (
        "Probe",
        "+ProbeHandler InitialDelaySeconds# TimeoutSeconds# PeriodSeconds# SuccessThreshold# \
         FailureThreshold# TerminationGracePeriodSeconds?",
    ),
    (
        "ProbeHandler",
        "Exec*ExecAction HTTPGet/httpGet*HTTPGetAction TCPSocket/tcpSocket*TCPSocketAction \
         GRPC/grpc*GRPCAction",
    ),
    ("ProjectedVolumeSource", "Sources[VolumeProjection] DefaultMode?"),
    ("QuobyteVolumeSource", "Registry Volume ReadOnly! User Group Tenant"),
    (
        "RBDPersistentVolumeSource",
        "CephMonitors/monitors? RBDImage/image FSType/fsType RBDPool/pool RadosUser/user Keyring \
         SecretRef*SecretReference ReadOnly!",
    ),
    (
        "RBDVolumeSource",
        "CephMonitors/monitors? RBDImage/image FSType/fsType RBDPool/pool RadosUser/user Keyring \
         SecretRef*LocalObjectReference ReadOnly!",
    ),
    ("ResourceClaim", "Name Request"),
    ("ResourceFieldSelector", "ContainerName Resource Divisor~"),
    ("ResourceRequirements", "Limits? Requests? Claims[ResourceClaim]"),
    ("RoleRef", "APIGroup/apiGroup Kind Name"),
    ("RollingUpdateDeployment", "MaxUnavailable# MaxSurge#"),
    ("RollingUpdateStatefulSetStrategy", "Partition# MaxUnavailable?"),
    ("SELinuxOptions", "User Role Type Level"),
    (
        "ScaleIOPersistentVolumeSource",
        "Gateway System SecretRef*SecretReference SSLEnabled/sslEnabled! ProtectionDomain StoragePool \
         StorageMode VolumeName FSType/fsType ReadOnly!",
    ),
    (
        "ScaleIOVolumeSource",
        "Gateway System SecretRef*LocalObjectReference SSLEnabled/sslEnabled! ProtectionDomain StoragePool \
         StorageMode VolumeName FSType/fsType ReadOnly!",
    ),
    ("SeccompProfile", "Type LocalhostProfile?"),
    ("SecretEnvSource", "+LocalObjectReference Optional?"),
    ("SecretKeySelector", "+LocalObjectReference Key Optional?"),
    ("SecretProjection", "+LocalObjectReference Items[KeyToPath] Optional?"),
    ("SecretReference", "Name Namespace"),
    ("SecretVolumeSource", "SecretName Items[KeyToPath] DefaultMode? Optional?"),
    (
        "SecurityContext",
        "Capabilities*Capabilities Privileged? SELinuxOptions/seLinuxOptions*SELinuxOptions \
         WindowsOptions*WindowsSecurityContextOptions RunAsUser? RunAsGroup? RunAsNonRoot? \
         ReadOnlyRootFilesystem? AllowPrivilegeEscalation? ProcMount? SeccompProfile*SeccompProfile \
         AppArmorProfile*AppArmorProfile",
    ),
    ("ServiceAccountTokenProjection", "Audience ExpirationSeconds# Path"),
    ("ServicePort", "Name Protocol AppProtocol? Port# TargetPort# NodePort#"),
    ("SleepAction", "Seconds#"),
    ("StatefulSetUpdateStrategy", "Type RollingUpdate*RollingUpdateStatefulSetStrategy"),
    (
        "StorageOSPersistentVolumeSource",
        "VolumeName VolumeNamespace FSType/fsType ReadOnly! SecretRef*ObjectReference",
    ),
    (
        "StorageOSVolumeSource",
        "VolumeName VolumeNamespace FSType/fsType ReadOnly! SecretRef*LocalObjectReference",
    ),
    ("SuccessPolicy", "Rules[SuccessPolicyRule]"),
    ("SuccessPolicyRule", "SucceededIndexes? SucceededCount?"),
    ("Sysctl", "Name Value"),
    ("TCPSocketAction", "Port# Host"),
    ("Taint", "Key Value Effect TimeAdded?"),
    ("Toleration", "Key Operator Value Effect TolerationSeconds?"),
    (
        "TopologySpreadConstraint",
        "MaxSkew# TopologyKey WhenUnsatisfiable LabelSelector@ MinDomains? NodeAffinityPolicy? \
         NodeTaintsPolicy? MatchLabelKeys?",
    ),
    ("TypedLocalObjectReference", "APIGroup/apiGroup? Kind Name"),
    ("TypedObjectReference", "APIGroup/apiGroup? Kind Name Namespace?"),
    ("UncountedTerminatedPods", "Succeeded? Failed?"),
    ("Volume", "Name +VolumeSource"),
    ("VolumeAttachmentSource", "PersistentVolumeName? InlineVolumeSpec*PersistentVolumeSpec"),
    ("VolumeAttachmentSpec", "Attacher Source=VolumeAttachmentSource NodeName"),
    ("VolumeDevice", "Name DevicePath"),
    ("VolumeMount", "Name ReadOnly! RecursiveReadOnly? MountPath SubPath MountPropagation? SubPathExpr"),
    ("VolumeNodeAffinity", "Required*NodeSelector"),
    (
        "VolumeProjection",
        "Secret*SecretProjection DownwardAPI*DownwardAPIProjection ConfigMap*ConfigMapProjection \
         ServiceAccountToken*ServiceAccountTokenProjection ClusterTrustBundle*ClusterTrustBundleProjection \
         PodCertificate*PodCertificateProjection",
    ),
    ("VolumeResourceRequirements", "Limits? Requests?"),
    (
        "VolumeSource",
        "HostPath*HostPathVolumeSource EmptyDir*EmptyDirVolumeSource \
         GCEPersistentDisk/gcePersistentDisk*GCEPersistentDiskVolumeSource \
         AWSElasticBlockStore/awsElasticBlockStore*AWSElasticBlockStoreVolumeSource \
         GitRepo*GitRepoVolumeSource Secret*SecretVolumeSource NFS/nfs*NFSVolumeSource \
         ISCSI/iscsi*ISCSIVolumeSource Glusterfs*GlusterfsVolumeSource \
         PersistentVolumeClaim*PersistentVolumeClaimVolumeSource RBD/rbd*RBDVolumeSource \
         Quobyte*QuobyteVolumeSource FlexVolume*FlexVolumeSource Cinder*CinderVolumeSource \
         CephFS/cephfs*CephFSVolumeSource Flocker*FlockerVolumeSource DownwardAPI*DownwardAPIVolumeSource \
         FC/fc*FCVolumeSource AzureFile*AzureFileVolumeSource ConfigMap*ConfigMapVolumeSource \
         VsphereVolume*VsphereVirtualDiskVolumeSource AzureDisk*AzureDiskVolumeSource \
         PhotonPersistentDisk*PhotonPersistentDiskVolumeSource Projected*ProjectedVolumeSource \
         PortworxVolume*PortworxVolumeSource ScaleIO*ScaleIOVolumeSource \
         StorageOS/storageos*StorageOSVolumeSource CSI/csi*CSIVolumeSource Ephemeral*EphemeralVolumeSource \
         Image*ImageVolumeSource",
    ),
    ("VsphereVirtualDiskVolumeSource", "VolumePath FSType/fsType StoragePolicyName StoragePolicyID"),
    ("WeightedPodAffinityTerm", "Weight# PodAffinityTerm=PodAffinityTerm"),
    (
        "WindowsSecurityContextOptions",
        "GMSACredentialSpecName/gmsaCredentialSpecName? GMSACredentialSpec/gmsaCredentialSpec? RunAsUserName? \
         HostProcess?",
    ),
    ("WorkloadReference", "Name PodGroup PodGroupReplicaKey"),
];
