#!/bin/sh
# Serves a folder by NFS, in the network of whoever starts this, and a disk by iSCSI, in the machine's. In folder $1.
set -eu
modprobe -a nfsd nfsv4 configfs target_core_mod target_core_file iscsi_target_mod iscsi_tcp sd_mod ipvlan 2>/dev/null
mkdir -p "$1/files" /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd
echo "$1/files *(rw,no_root_squash,fsid=0,no_subtree_check,insecure)" > /etc/exports
exportfs -ra
rpc.mountd --no-nfs-version 2 --no-nfs-version 3
# As short as it may be: no client is there that was there before.
rpc.nfsd --no-nfs-version 3 --grace-time 10 --lease-time 10 2

/lib/systemd/systemd-udevd --daemon 2>/dev/null
mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/target
mkdir -p core/fileio_0/disk
echo "fd_dev_name=$1/disk,fd_dev_size=67108864" > core/fileio_0/disk/control
echo 1 > core/fileio_0/disk/enable
target=iscsi/iqn.2026-11.io.knarr:disks/tpgt_1
mkdir -p $target/lun/lun_0
ln -s "$PWD/core/fileio_0/disk" $target/lun/lun_0/disk
nsenter --net=/proc/1/ns/net mkdir -p $target/np/127.0.0.1:3260
for value in authentication=0 generate_node_acls=1 demo_mode_write_protect=0; do
    echo "${value#*=}" > $target/attrib/"${value%=*}"
done
echo 1 > $target/enable
mkdir -p /run/lock
echo InitiatorName=iqn.2026-11.io.knarr:node > /etc/iscsi/initiatorname.iscsi
nsenter --net=/proc/1/ns/net iscsid
