#!/bin/sh
# Stands for a network's plugin: notes what it is told, and has the bridge and host-local of this machine do it.
folder=SCRATCH/plugin
told=$(cat)
name=$(echo "$CNI_ARGS" | tr ';' '\n' | sed -n 's/^K8S_POD_NAME=//p')
mkdir -p $folder
echo "$CNI_COMMAND $CNI_IFNAME $CNI_ARGS" >> $folder/calls
echo "$told" > "$folder/$CNI_COMMAND.${name:-network}"
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}'; exit 0 ;;
STATUS) [ ! -e $folder/broken ] || { echo '{"code": 51, "msg": "the agent is not ready"}'; exit 1; }; exit 0 ;;
CHECK | GC) exit 0 ;;
ADD) [ ! -e $folder/fails ] || { echo '{"code": 11, "msg": "no endpoint", "details": "its agent answers later"}'; exit 1; } ;;
esac
kubeconfig=SCRATCH/etc/cni/net.d/calico-kubeconfig
if [ "$CNI_COMMAND" = ADD ] && [ -e $kubeconfig ]; then
    # As Calico's: it writes to the Pod by its own account, which may do nothing else to it.
    namespace=$(echo "$CNI_ARGS" | tr ';' '\n' | sed -n 's/^K8S_POD_NAMESPACE=//p')
    server=$(sed -n "s/.*server: '\([^']*\)'.*/\1/p" $kubeconfig) token=$(sed -n 's/.*token: \([^}]*\)}.*/\1/p' $kubeconfig)
    curl --silent --fail --insecure --max-time 10 --request PATCH --header "Authorization: Bearer $token" \
        --header 'Content-Type: application/strategic-merge-patch+json' --output /dev/null \
        --data '{"metadata": {"annotations": {"cni.projectcalico.org/containerID": "'"$CNI_CONTAINERID"'"}}}' \
        "$server/api/v1/namespaces/$namespace/pods/$name/status" ||
        { echo '{"code": 11, "msg": "the API refuses"}'; exit 1; }
fi
echo '{"cniVersion": "0.3.1", "name": "played", "type": "bridge", "bridge": "played0", "isDefaultGateway": true,
  "hairpinMode": true, "ipam": {"type": "host-local", "subnet": "10.42.0.0/24", "dataDir": "SCRATCH/leases"}}' |
    CNI_PATH=PLUGINS PLUGINS/bridge
