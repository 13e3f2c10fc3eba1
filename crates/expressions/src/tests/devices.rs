//! Expressions as people write them.

use k8s_openapi::api::resource::v1::Device;

use crate::device::{CompileError, Selectors};

const DEVICE: &str = "{name: gpu-0, attributes: {model: {string: a100}, index: {int: 3}, healthy: {bool: true}, \
    other.example.com/firmware: {version: 1.2.3}}, capacity: {memory: {value: 40Gi}}}";

fn check(expression: &str, expect: Result<bool, &str>) {
    let device: Device = serde_saphyr::from_str(DEVICE).expect("a device");
    let answer = Selectors::default().matches(expression, "gpu.example.com", &device);
    let answer = answer.map_err(|error| error.to_string());
    match expect {
        Ok(expect) => assert_eq!(answer, Ok(expect), "{expression}"),
        Err(part) => {
            let error = answer.expect_err(expression);
            assert!(error.contains(part), "{expression}: {error}");
        }
    }
}

#[test]
fn expressions_see_driver_attributes_and_capacity() {
    check("device.driver == 'gpu.example.com'", Ok(true));
    check("device.attributes['gpu.example.com'].model == 'a100'", Ok(true));
    check("device.attributes['gpu.example.com'].index > 5", Ok(false));
    check("device.attributes['gpu.example.com'].healthy", Ok(true));
    check("device.attributes['gpu.example.com'].model.startsWith('a')", Ok(true));
    check("device.attributes['gpu.example.com'].model.matches('^a[0-9]+$')", Ok(true));
    check("device.attributes['gpu.example.com'].model in ['a100', 'h100']", Ok(true));
    check("!device.allowMultipleAllocations", Ok(true));
}

#[test]
fn quantities_and_versions_compare() {
    let memory = "device.capacity['gpu.example.com'].memory";
    check(&format!("{memory}.compareTo(quantity('40Gi')) == 0"), Ok(true));
    check(&format!("{memory}.isGreaterThan(quantity('39Gi'))"), Ok(true));
    check(&format!("{memory} == quantity('40960Mi')"), Ok(true));
    check(&format!("{memory}.sub(quantity('40Gi')).sign() == 0"), Ok(true));
    check(&format!("{memory}.add(1).asInteger() == 42949672961"), Ok(true));
    let firmware = "device.attributes['other.example.com'].firmware";
    check(&format!("{firmware}.isLessThan(semver('2.0.0')) && {firmware}.minor() == 2"), Ok(true));
    check(&format!("{firmware} == semver('1.2.3')"), Ok(true));
    check("isSemver('1.2') || isQuantity('x')", Ok(false));
}

#[test]
fn what_is_not_there_can_be_asked_for() {
    check("has(device.attributes['gpu.example.com'].nothing)", Ok(false));
    check("has(device.attributes['nobody.example.com'].model)", Ok(false));
    check("device.attributes['nobody.example.com'].model == 'x'", Err("CEL runtime error: no such key"));
    check("device.attributes['nobody.example.com'].?model.orValue('x') == 'x'", Ok(true));
    check("cel.bind(gpu, device.attributes['gpu.example.com'], gpu.healthy && gpu.index == 3)", Ok(true));
}

#[test]
fn what_is_no_selector_is_told() {
    check("device.driver ==", Err("CEL compile error: compilation failed"));
    check("1 + 1", Err("must evaluate to bool or the unknown type, not int"));
    check("'yes'", Err("CEL compile error: must evaluate to bool or the unknown type, not string"));
}

#[test]
fn what_could_run_for_ever_is_not_tried() {
    let list = format!("[{}]", vec!["1"; 100].join(","));
    let nested = |depth: usize| {
        (0..depth).fold("true".to_owned(), |inner, level| format!("{list}.all(x{level}, {inner})"))
    };
    check(&nested(2), Ok(true));
    check(&nested(4), Err("CEL compile error: too complex, exceeds cost limit"));
    let doubled = (0..60).fold("size(v60) == 0".to_owned(), |inner, level| {
        let level = 60 - level;
        format!("cel.bind(v{level}, v{0} + v{0}, {inner})", level - 1)
    });
    check(&format!("cel.bind(v0, 'xx', {doubled})"), Err("CEL compile error"));
    check("lists.range(1000000).all(x, x >= 0)", Err("CEL compile error: too complex, exceeds cost limit"));
    check("lists.range(size(device.driver)).all(x, x >= 0)", Err("CEL compile error: too complex"));
    check(&format!("{}1 == 1", "1 + ".repeat(2000)), Err("CEL compile error"));
    check(&format!("{}true", "!".repeat(9000)), Ok(true));
    check(&format!("{}true{}", "(".repeat(5000), ")".repeat(5000)), Err("CEL compile error"));
    check(&format!("{}1{} == 1", "[".repeat(2000), "][0]".repeat(2000)), Err("CEL compile error"));
}

#[test]
fn lists_and_sets_are_compared() {
    check("[1, 2, 2].isSorted() && ![2, 1].isSorted() && [].isSorted()", Ok(true));
    check("[3, 1, 2].min() == 1 && [1, 2].max() == 2 && [1, 2].sum() == 3 && [].sum() == 0", Ok(true));
    check("[].min() == 1", Err("min called on empty list"));
    check("[1, 'a'].isSorted()", Err("expected type 'int' but found 'string'"));
    check("[9223372036854775807, 1].sum() == 0", Err("integer overflow"));
    check("sets.contains([1, 2, 3], [2, 2]) && !sets.contains([1], [2])", Ok(true));
    check("sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])", Ok(true));
    check(
        "[3, 1, 2].sort() == [1, 2, 3] && [1, 1].distinct() == [1] && lists.range(3) == [0, 1, 2]",
        Ok(true),
    );
}

#[test]
fn texts_are_searched() {
    check("'abc 123 45'.find('[0-9]+') == '123' && 'abc'.find('[0-9]') == ''", Ok(true));
    check(
        "'123 45 6'.findAll('[0-9]+') == ['123', '45', '6'] && '12'.findAll('[0-9]', 1) == ['1']",
        Ok(true),
    );
    check("'abc'.find('[') == ''", Err("CEL compile error: program instantiation failed"));
}

#[test]
fn addresses_are_told_apart() {
    check(
        "ip('192.168.0.1').family() == 4 && ip('::1').isLoopback() && ip('fe80::1').isLinkLocalUnicast()",
        Ok(true),
    );
    check(
        "isIP('10.0.0.1') && !isIP('::ffff:10.0.0.1') && !isIP('fe80::1%eth0') && !isIP('010.0.0.1')",
        Ok(true),
    );
    check("ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')", Ok(true));
    check("ip('8.8.8.8').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()", Ok(true));
    check("ip('224.0.0.5').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()", Ok(true));
    check(
        "cidr('10.1.0.0/16').containsIP('10.1.2.3') && !cidr('10.1.0.0/16').containsIP(ip('10.2.0.1'))",
        Ok(true),
    );
    check(
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
        Ok(true),
    );
    check(
        "cidr('10.1.2.3/16').masked() == cidr('10.1.0.0/16') && cidr('::/0').prefixLength() == 0",
        Ok(true),
    );
    check("isCIDR('10.0.0.0/33') || isCIDR('10.0.0.0/08') || isCIDR('10.0.0.0')", Ok(false));
    check("ip('x').isLoopback()", Err("CEL runtime error"));
}

#[test]
fn what_nobody_has_named_is_pointed_at() {
    let undeclared = |line: usize, column: usize, name: &str, text: &str| {
        let dots = ".".repeat(column - 1);
        Err(CompileError::Invalid(format!(
            "compilation failed: ERROR: <input>:{line}:{column}: undeclared reference to '{name}' (in container '')\n | \
             {text}\n | {dots}^"
        )))
    };
    let check = |expression: &str| Selectors::default().check(expression);
    assert_eq!(check("nobody == 1"), undeclared(1, 1, "nobody", "nobody == 1"));
    assert_eq!(check("true &&\n  !nobody"), undeclared(2, 4, "nobody", "  !nobody"));
    assert_eq!(check("[1].all(x, x > 0) && x"), undeclared(1, 22, "x", "[1].all(x, x > 0) && x"));
    assert_eq!(check("[1].all(x, [x].exists(y, y == x))"), Ok(()));
    // As upstream, which knows no size of what is no number and no text of the device.
    assert_eq!(check("type(1) == int"), Err(CompileError::TooCostly));
    assert_eq!(check("cel.bind(d, device, d.driver == 'x')"), Ok(()));
    assert_eq!(check("optional.of(1).hasValue() && [2, 1].sortBy(x, x) == [1, 2]"), Ok(()));
}
