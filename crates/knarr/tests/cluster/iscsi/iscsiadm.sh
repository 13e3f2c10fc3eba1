#!/bin/sh
# What iscsiadm does, as far as a Node sees it. The kernel takes its time to name a disk, so that somebody has to wait.
echo "$*" >> @STATE@/calls
sessions=@STATE@/sessions
folder=/dev/disk/by-path

# Runs the rest for every disk, as $lun and $image, of which $link is the name by the portal.
each() {
    for image in @STATE@/*.img; do
        lun=${image##*/}
        lun=${lun%.img}
        link=$folder/ip-$portal-iscsi-$iqn-lun-$lun
        "$@"
    done
}

show() {
    device=$(losetup --associated "$image" --noheadings --output NAME | head -n 1)
    [ -n "$device" ] || device=$(losetup --find --show "$image")
    mkdir -p $folder
    ln -sfn "$device" "$link"
}

hide() {
    rm -f "$link"
}

free() {
    for device in $(losetup --associated "$image" --noheadings --output NAME); do losetup --detach "$device"; done
}

logout() {
    read -r iqn < "$sessions/$portal"
    rm "$sessions/$portal"
    each hide
    [ -n "$(ls $sessions)" ] || each free
    # If it is empty.
    rmdir $folder /dev/disk 2> /dev/null
}

while [ $# -gt 0 ]; do
    case $1 in
    -m) mode=$2 ;;
    -o) what=$2 ;;
    -p) portal=$2 ;;
    -T) iqn=$2 ;;
    -I) iface=$2 ;;
    -n) key=$2 ;;
    -v) value=$2 ;;
    --login | --logout | --discover) what=${1#--} ;;
    esac
    shift
done

case "$mode $what" in
"iface show")
    echo "iface.iscsi_ifacename = $iface"
    echo "iface.transport_name = tcp"
    echo "iface.initiatorname = <empty>"
    ;;
"node update")
    [ "$key" != node.session.auth.password ] || echo "$value" > @STATE@/password
    ;;
"node login")
    if [ "$(cat @STATE@/password)" != right ]; then
        echo "login failed: authorization failure"
        exit 24
    fi
    [ ! -e "$sessions/$portal" ] || exit 15
    echo "$iqn" > "$sessions/$portal"
    (sleep 0.5; each show) > /dev/null 2>&1 &
    ;;
"node logout")
    [ -e "$sessions/$portal" ] || exit 21
    logout
    ;;
"test clean")
    for session in "$sessions"/*; do
        portal=${session##*/}
        [ ! -e "$session" ] || logout
    done
    each free
    ;;
esac
exit 0
