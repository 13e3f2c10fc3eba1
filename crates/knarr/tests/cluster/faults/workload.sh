# A Pod of each application on each Node, which go at once with their Node, and a Service for each.
for app in a b c; do
    cat <<E | kubectl apply -f - || exit 1
apiVersion: apps/v1
kind: Deployment
metadata: {name: $app}
spec:
  replicas: 3
  selector: {matchLabels: {app: $app}}
  template:
    metadata: {labels: {app: $app}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: $app}}
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 0}
      containers:
      - name: main
        image: test.local/busybox
        command: [sh, -c, "echo $app > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: $app}
spec: {selector: {app: $app}, ports: [{port: 80, targetPort: 8080}]}
E
done
