//! Cases of the rules of certificates.

use super::*;

#[test]
fn a_signing_request_is_one() {
    check(
        CSR,
        "{spec: {request: bm8=, usages: [signing, signing, flying], signerName: kubernetes.io/legacy-unknown, expirationSeconds: 5}, status: {conditions: [{type: Approved, status: 'False'}, {type: Denied, status: 'True'}, {type: '', status: ''}]}}",
        expect![[r#"
        spec.request: Invalid value: "bm8=": PEM block type must be CERTIFICATE REQUEST
        spec.usages[2]: Unsupported value: "flying": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
        spec.usages[1]: Duplicate value: "signing"
        spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version
        spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)
        status.conditions[0].status: Unsupported value: "False": supported values: "True"
        status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive
        status.conditions[2].type: Required value
        status.conditions[2].status: Required value"#]],
    );
    let denied = "{spec: {}, status: {conditions: [{type: Denied, status: 'True'}], certificate: YQ==}}";
    check_update(
        CSR,
        denied,
        "{spec: {}, status: {certificate: Yg==}}",
        expect![[r#"
        spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST
        spec.usages: Required value
        spec.signerName: Required value
        spec.signerName: Invalid value: "": must be a fully qualified domain and path of the form 'example.com/signer-name'
        status.conditions: Forbidden: updates may not remove a condition of type "Denied"
        status.certificate: Forbidden: updates may not set certificate content"#]],
    );
    check(
        BUNDLE,
        "{metadata: {name: 'b:c'}, spec: {signerName: example.com/s, trustBundle: x}}",
        expect![[r#"
        metadata.name: Invalid value: "b:c": ClusterTrustBundle for signerName example.com/s must be named with prefix example.com:s:
        spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided"#]],
    );
}
