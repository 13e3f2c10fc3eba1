//! Cases of the rules of devices.

use super::*;

#[test]
fn a_resource_claim_asks_for_devices() {
    check(
        CLAIM,
        "{spec: {devices: {requests: [{name: r}, {name: r, exactly: {deviceClassName: '', allocationMode: Some, tolerations: [{operator: Exists, value: v}]}}], constraints: [{requests: [q], matchAttribute: model}, {}], config: [{requests: [r/x]}]}}}",
        expect![[r#"
        spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
        spec.devices.requests[1].exactly.deviceClassName: Required value
        spec.devices.requests[1].exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"
        spec.devices.requests[1].exactly.tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`
        spec.devices.requests[1]: Duplicate value: "r"
        spec.devices.constraints[0].requests[0]: Invalid value: "q": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash
        spec.devices.constraints[1].matchAttribute: Required value
        spec.devices.config[0].requests[0]: Invalid value: "r/x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        spec.devices.config[0].opaque: Required value"#]],
    );
    check_update(
        CLAIM,
        "{spec: {devices: {}}}",
        "{spec: {devices: {requests: []}}}",
        expect![[r#"spec: Invalid value: {"devices":{"requests":[]}}: field is immutable"#]],
    );
    check(
        DEVICES,
        "{spec: {driver: d, nodeName: '', allNodes: true, perDeviceNodeSelection: true, pool: {name: 'a//b', resourceSliceCount: 0, generation: -1}, devices: [{name: D, attributes: {a/b/c: {int: 1, bool: true}, x: {version: '1.0'}}}, {name: D, attributes: {y: {}}}]}}",
        expect![[r#"
        spec.pool.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero
        spec.pool.generation: Invalid value: -1: must be greater than or equal to zero
        spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string
        spec: Invalid value: "{`allNodes`, `perDeviceNodeSelection`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set
        spec.devices[0].name: Invalid value: "D": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.devices[0].attributes[a/b/c]: Invalid value: "a/b/c": must not contain more than one slash
        spec.devices[0].attributes[a/b/c]: Invalid value: {"bool":true,"int":1}: exactly one value must be specified
        spec.devices[0].attributes[x].version: Invalid value: "1.0": must be a string compatible with semver.org spec 2.0.0
        spec.devices[1].name: Invalid value: "D": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.devices[1].attributes[y]: Invalid value: "": exactly one value must be specified
        spec.devices[1]: Duplicate value: "D""#]],
    );
}

#[test]
fn selectors_must_compile() {
    let selectors = "[{cel: {expression: 'device.driver == \"d\"'}}, {cel: {expression: nobody}}, {cel: {expression: '1'}}, \
        {}, {cel: {expression: 'lists.range(1000000).all(x, x > 1)'}}]";
    let class = format!("{{spec: {{selectors: {selectors}}}}}");
    check(
        DEVICE_CLASS,
        &class,
        expect![[r#"
            spec.selectors[1].cel.expression: Invalid value: "nobody": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody' (in container '')
             | nobody
             | ^
            spec.selectors[2].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int
            spec.selectors[3].cel: Required value
            spec.selectors[4].cel.expression: Forbidden: too complex, exceeds cost limit"#]],
    );
    // What was stored before stays.
    check_update(DEVICE_CLASS, &class, &class, expect![""]);
}

#[test]
fn drivers_tell_of_allocated_devices_only() {
    let claim = "{metadata: {name: c, namespace: d}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: k}}]}}, status: {allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: a}]}}}}";
    let row = crate::find("resource.k8s.io", "v1", "resourceclaims").unwrap();
    let old: Value = serde_saphyr::from_str(claim).unwrap();
    let mut new = old.clone();
    let devices = "[{driver: d.example, pool: p, device: a, data: [], networkData: {ips: [10.0.0.1/24, 10.0.0.01/8, x, x]}}, {driver: d.example, pool: p, device: b, conditions: [{type: Ready, status: 'True', reason: Up, lastTransitionTime: '2025-01-01T00:00:00Z'}]}, {driver: d.example, pool: p, device: a}]";
    new["status"]["devices"] = serde_saphyr::from_str(devices).unwrap();
    let errors = row.validate_status_update(&new, &old);
    let shown: Vec<_> = errors.iter().map(ToString::to_string).collect();
    expect![[r#"
        status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object
        status.devices[0].networkData.ips[1]: Invalid value: "10.0.0.01/8": must be in canonical form ("10.0.0.1/8")
        status.devices[0].networkData.ips[2]: Invalid value: "x": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)
        status.devices[0].networkData.ips[3]: Invalid value: "x": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)
        status.devices[0].networkData.ips[3]: Duplicate value: "x"
        status.devices[1]: Invalid value: {"Device":"b","Driver":"d.example","Pool":"p"}: must be an allocated device in the claim
        status.devices[2]: Duplicate value: {"Device":"a","Driver":"d.example","Pool":"p"}"#]]
    .assert_eq(&shown.join("\n"));
}
