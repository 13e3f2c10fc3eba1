//! The expressions of admission policies: what they see, and how they are compiled.
//!
//! Variables see those before them, and everything else sees all of them, each with the type that its expression has.
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel/{compile,composition}.go`.

use expressions::{CompileError, Declared, Environment, Library, MadeType, Program, Type};

use crate::match_conditions::{ExpressionError, OBJECT, OLD_OBJECT, asking, compile_in, request};

/// The variable that has a parameter.
pub const PARAMS: &str = "params";
/// The one that has the policy's variables.
pub const VARIABLES: &str = "variables";
/// The type of all variables together.
const VARIABLES_TYPE: &str = "kubernetes.variables";

/// The variables that an expression sees beside the request and the policy's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// The authorizer, which says what somebody may do.
    Authorizer,
    /// Nothing: it is a message's.
    Nothing,
    /// The authorizer, and the types that changes are made of.
    Patches,
}

/// The compiler of the expressions of one policy.
#[derive(Clone, Debug)]
pub struct Compiler {
    asking: Environment,
    telling: Environment,
    patching: Environment,
}

/// Compiles a match condition as it is written: it sees no variables then.
///
/// # Errors
/// What is wrong with it.
pub fn condition(expression: &str, has_params: bool) -> Result<Program, ExpressionError> {
    let all = if has_params { request().variable(PARAMS, Type::Dyn) } else { request() };
    compile_in(&asking(all), expression, &[Type::Bool])
}

impl Compiler {
    /// For a policy without variables yet.
    #[must_use]
    pub fn new(has_params: bool) -> Self {
        let telling = match has_params {
            true => request().variable(PARAMS, Type::Dyn),
            false => request(),
        };
        let telling = telling
            .variable(VARIABLES, Type::named(VARIABLES_TYPE))
            .making(MadeType { name: VARIABLES_TYPE.to_owned(), fields: Some(Default::default()) });
        let asking = asking(telling.clone());
        let patching = asking.clone().with(Library::Patches).making(MadeType::json_patch());
        Self { patching: patching.making(MadeType::object()), asking, telling }
    }

    /// Compiles a variable, which all that are compiled later see, whether it can be compiled or not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn variable(&mut self, name: &str, expression: &str) -> Result<Program, ExpressionError> {
        let compiled = compile_in(&self.asking, expression, &[]);
        let kind = compiled.as_ref().map_or(Type::Dyn, |program| kept(program.kind()));
        for environment in [&mut self.asking, &mut self.telling, &mut self.patching] {
            environment.add_field(VARIABLES_TYPE, name, kind.clone());
        }
        compiled
    }

    /// Compiles what must be of one of some types.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self, expression: &str, sees: Sees, types: &[Type]) -> Result<Program, ExpressionError> {
        let environment = match sees {
            Sees::Authorizer => &self.asking,
            Sees::Nothing => &self.telling,
            Sees::Patches => &self.patching,
        };
        compile_in(environment, expression, types)
    }
}

/// The check of one policy's expressions against the types of what they are about; what they give does not matter.
#[derive(Clone, Debug)]
pub struct Checker(Environment);

impl Checker {
    /// For objects of a type, and parameters of one, if there are any.
    #[must_use]
    pub fn new(object: &Declared, params: Option<&Declared>) -> Self {
        let all = request().declared(OBJECT, object.clone()).declared(OLD_OBJECT, object.clone());
        let all = match params {
            Some(params) => all.declared(PARAMS, params.clone()),
            None => all,
        };
        let all = asking(all).variable(VARIABLES, Type::named(VARIABLES_TYPE));
        Self(all.making(MadeType { name: VARIABLES_TYPE.to_owned(), fields: Some(Default::default()) }))
    }

    /// Lets expressions that are checked later see a variable.
    pub fn variable(&mut self, name: &str, expression: &str) {
        let compiled = self.0.compile(expression);
        let kind = compiled.map_or(Type::Dyn, |program| kept(program.kind()));
        self.0.add_field(VARIABLES_TYPE, name, kind);
    }

    /// Checks an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, expression: &str) -> Result<(), CompileError> {
        self.0.compile(expression).map(drop)
    }
}

/// What is known later of a variable's type: objects and what only functions know are whatever comes.
fn kept(kind: &Type) -> Type {
    match kind {
        Type::List(element) => Type::list(kept(element)),
        Type::Map(key, value) => Type::map(kept(key), kept(value)),
        Type::Object(_) | Type::Opaque(..) | Type::Type(_) | Type::Param(_) | Type::Error => Type::Dyn,
        known => known.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_see_those_before_them() {
        let mut compiler = Compiler::new(false);
        let kind = |compiled: Result<Program, ExpressionError>| {
            compiled.map(|program| program.kind().to_string()).map_err(|why| why.to_string())
        };
        assert_eq!(kind(compiler.variable("n", "1")), Ok("int".to_owned()));
        assert_eq!(kind(compiler.variable("ns", "[variables.n]")), Ok("list(int)".to_owned()));
        assert_eq!(kind(compiler.variable("asks", "authorizer.group('')")).map(drop), Ok(()));
        let broken = kind(compiler.variable("broken", "variables.later"));
        assert!(broken.is_err_and(|why| why.contains("undefined field 'later'")));
        let text = |expression: &str| kind(compiler.compile(expression, Sees::Authorizer, &[Type::Bool]));
        assert_eq!(text("variables.n in variables.ns"), Ok("bool".to_owned()));
        assert!(text("variables.n == 'x'").is_err_and(|why| why.contains("no matching overload")));
        assert_eq!(text("variables.asks.resource('pods').check('get').allowed()"), Ok("bool".to_owned()));
        assert_eq!(text("variables.broken == 1 || variables.broken == ''"), Ok("bool".to_owned()));
        assert!(text("variables.nobody == 1").is_err_and(|why| why.contains("undefined field 'nobody'")));
    }

    #[test]
    fn what_is_seen_depends_on_the_place() {
        let check = |expression: &str, has_params: bool, sees: Sees, types: &[Type], expected: &str| {
            let found = Compiler::new(has_params).compile(expression, sees, types);
            let found = found.map_or_else(|why| why.to_string(), |program| program.kind().to_string());
            assert!(found.contains(expected), "{expression}: {found}");
        };
        let (text, null) = ([Type::String], [Type::String, Type::Null]);
        for (expression, has_params, sees, types, expected) in [
            ("params.a == 1", true, Sees::Authorizer, &[Type::Bool][..], "bool"),
            ("params.a == 1", false, Sees::Authorizer, &[Type::Bool], "undeclared reference to 'params'"),
            ("namespaceObject.metadata.name == ''", false, Sees::Authorizer, &[Type::Bool], "bool"),
            ("namespaceObject.metadata.managedFields", false, Sees::Nothing, &[], "undefined field"),
            ("authorizer == authorizer", false, Sees::Nothing, &[], "undeclared reference to 'authorizer'"),
            ("1", false, Sees::Nothing, &text, "must evaluate to string but got int"),
            ("1", false, Sees::Authorizer, &null, "must evaluate to one of [string null_type] but got int"),
            ("null", false, Sees::Authorizer, &null, "null"),
            ("timestamp(0)", false, Sees::Nothing, &text, "but got google.protobuf.Timestamp"),
            ("Object{spec: Object.spec{n: 1}}", false, Sees::Patches, &[Type::named("Object")], "Object"),
            ("Object{}", false, Sees::Authorizer, &[], "undeclared reference"),
            (
                "[JSONPatch{op: 'test'}]",
                false,
                Sees::Patches,
                &[Type::list(Type::named("JSONPatch"))],
                "list(JSONPatch)",
            ),
            (
                "1",
                false,
                Sees::Patches,
                &[Type::list(Type::named("JSONPatch"))],
                "must evaluate to list(JSONPatch) but got int",
            ),
        ] {
            check(expression, has_params, sees, types, expected);
        }
    }
}
