//! Walks through parsed C and tells what each name in it means: a use of an object of file scope, or something else (a
//! member, a label, a name declared further in).

use lang_c::ast;
use lang_c::span::{Node, Span};
use lang_c::visit::{self, Visit};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What a name is where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Part of an expression.
    Use {
        /// Where the compiler must know the object's address before the program runs.
        constant: bool,
    },
    /// A declared name, a member, a label, a tag.
    Other,
}

/// Names and where they mean something else.
#[derive(Default)]
pub struct Names {
    /// By where they begin.
    pub meanings: HashMap<usize, Meaning>,
    /// Where a name is one of an inner scope.
    pub hidden: HashMap<String, Vec<Range<usize>>>,
}

impl Names {
    /// Looks for these names in a translation unit.
    pub fn of(unit: &ast::TranslationUnit, wanted: &HashSet<String>) -> Names {
        let mut walk = Walk { wanted, names: Names::default(), scopes: Vec::new(), unevaluated: 0, constant: 0 };
        for external in &unit.0 {
            walk.visit_external_declaration(&external.node, &external.span);
        }
        walk.names
    }

    /// Whether at this place the name is not the one of file scope.
    pub fn is_hidden(&self, name: &str, at: usize) -> bool {
        self.hidden.get(name).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&at)))
    }
}

/// The name that a declarator declares.
pub fn declared(declarator: &ast::Declarator) -> Option<&Node<ast::Identifier>> {
    match &declarator.kind.node {
        ast::DeclaratorKind::Abstract => None,
        ast::DeclaratorKind::Identifier(name) => Some(name),
        ast::DeclaratorKind::Declarator(inner) => declared(&inner.node),
    }
}

/// Whether specifiers hold this storage class.
pub fn has_class(specifiers: &[Node<ast::DeclarationSpecifier>], wanted: &ast::StorageClassSpecifier) -> bool {
    specifiers.iter().any(|specifier| match &specifier.node {
        ast::DeclarationSpecifier::StorageClass(class) => class.node == *wanted,
        _ => false,
    })
}

struct Walk<'w> {
    wanted: &'w HashSet<String>,
    names: Names,
    /// Of each scope but the file's: its names, with the place from where they hold.
    scopes: Vec<Vec<(String, usize)>>,
    unevaluated: usize,
    constant: usize,
}

impl Walk<'_> {
    fn open(&mut self) {
        self.scopes.push(Vec::new());
    }

    fn close(&mut self, end: usize) {
        for (name, start) in self.scopes.pop().into_iter().flatten() {
            self.names.hidden.entry(name).or_default().push(start..end);
        }
    }

    fn declare(&mut self, name: &Node<ast::Identifier>, from: usize) {
        if self.wanted.contains(&name.node.name) {
            if let Some(scope) = self.scopes.last_mut() {
                scope.push((name.node.name.clone(), from));
            }
        }
    }

    fn unevaluated(&mut self, walk: impl FnOnce(&mut Self)) {
        self.unevaluated += 1;
        walk(self);
        self.unevaluated -= 1;
    }
}

/// The parameters of the function that a declarator declares.
fn parameters(declarator: &ast::Declarator) -> &[Node<ast::ParameterDeclaration>] {
    if let ast::DeclaratorKind::Declarator(inner) = &declarator.kind.node {
        // int (*f(int a))[3]: what is next to the name counts.
        let own = parameters(&inner.node);
        if !own.is_empty() {
            return own;
        }
    }
    for derived in &declarator.derived {
        if let ast::DerivedDeclarator::Function(function) = &derived.node {
            return &function.node.parameters;
        }
    }
    &[]
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_identifier(&mut self, name: &'ast ast::Identifier, span: &'ast Span) {
        if self.wanted.contains(&name.name) {
            self.names.meanings.entry(span.start).or_insert(Meaning::Other);
        }
    }

    fn visit_expression(&mut self, expression: &'ast ast::Expression, span: &'ast Span) {
        if let ast::Expression::Identifier(name) = expression {
            if self.wanted.contains(&name.node.name) {
                let constant = self.constant > 0 && self.unevaluated == 0;
                self.names.meanings.insert(name.span.start, Meaning::Use { constant });
            }
            return;
        }
        visit::visit_expression(self, expression, span);
    }

    fn visit_sizeofval(&mut self, size: &'ast ast::SizeOfVal, span: &'ast Span) {
        self.unevaluated(|walk| visit::visit_sizeofval(walk, size, span));
    }

    fn visit_type_of(&mut self, kind: &'ast ast::TypeOf, span: &'ast Span) {
        self.unevaluated(|walk| visit::visit_type_of(walk, kind, span));
    }

    fn visit_enumerator(&mut self, enumerator: &'ast ast::Enumerator, span: &'ast Span) {
        visit::visit_enumerator(self, enumerator, span);
        self.declare(&enumerator.identifier, span.end);
    }

    fn visit_function_declarator(&mut self, function: &'ast ast::FunctionDeclarator, span: &'ast Span) {
        self.open();
        visit::visit_function_declarator(self, function, span);
        self.close(span.end);
    }

    fn visit_parameter_declaration(&mut self, parameter: &'ast ast::ParameterDeclaration, span: &'ast Span) {
        visit::visit_parameter_declaration(self, parameter, span);
        if let Some(name) = parameter.declarator.as_ref().and_then(|declarator| declared(&declarator.node)) {
            self.declare(name, span.end);
        }
    }

    fn visit_declaration(&mut self, declaration: &'ast ast::Declaration, _: &'ast Span) {
        for specifier in &declaration.specifiers {
            self.visit_declaration_specifier(&specifier.node, &specifier.span);
        }
        let fixed = [ast::StorageClassSpecifier::Static, ast::StorageClassSpecifier::ThreadLocal];
        let fixed = self.scopes.is_empty() || fixed.iter().any(|class| has_class(&declaration.specifiers, class));
        for init in &declaration.declarators {
            let declarator = &init.node.declarator;
            self.visit_declarator(&declarator.node, &declarator.span);
            if let Some(name) = declared(&declarator.node) {
                self.declare(name, declarator.span.end);
            }
            if let Some(initializer) = &init.node.initializer {
                // An initialiser of an automatic variable, in a statement expression in one of a static: no C.
                self.constant += usize::from(fixed);
                self.visit_initializer(&initializer.node, &initializer.span);
                self.constant -= usize::from(fixed);
            }
        }
    }

    fn visit_function_definition(&mut self, function: &'ast ast::FunctionDefinition, span: &'ast Span) {
        for specifier in &function.specifiers {
            self.visit_declaration_specifier(&specifier.node, &specifier.span);
        }
        self.visit_declarator(&function.declarator.node, &function.declarator.span);
        self.open();
        for parameter in parameters(&function.declarator.node) {
            if let Some(name) = parameter.node.declarator.as_ref().and_then(|declarator| declared(&declarator.node)) {
                self.declare(name, function.declarator.span.end);
            }
        }
        for declaration in &function.declarations {
            self.visit_declaration(&declaration.node, &declaration.span);
        }
        self.visit_statement(&function.statement.node, &function.statement.span);
        self.close(span.end);
    }

    fn visit_statement(&mut self, statement: &'ast ast::Statement, span: &'ast Span) {
        let scope = matches!(statement, ast::Statement::Compound(_) | ast::Statement::For(_));
        if scope {
            self.open();
        }
        visit::visit_statement(self, statement, span);
        if scope {
            self.close(span.end);
        }
    }
}
