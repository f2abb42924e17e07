//! The `dlm` declarations of a file: which objects they declare, and which of them are defined here.

use crate::Problem;
use crate::names::{declared, has_class};
use crate::token::{Token, tokens_within};
use lang_c::ast::{
    ArraySize, Constant, Declaration, DeclarationSpecifier, Declarator, DeclaratorKind, DerivedDeclarator, Expression,
    Extension, ExternalDeclaration, Initializer, StorageClassSpecifier, TranslationUnit, TypeSpecifier,
};
use lang_c::span::Node;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// One object.
pub struct Array {
    /// Its name.
    pub name: String,
    /// Where its name stands in the definition that counts, or in the first declaration.
    pub at: usize,
    /// Defined in this file: here it gets its memory.
    pub defined: bool,
    /// Whether a declaration gives its size.
    sized: bool,
    /// Seen by other files.
    pub shared: bool,
}

/// What the declarations come to.
#[derive(Default)]
pub struct Declared {
    /// In the order of their first declarations.
    pub arrays: Vec<Array>,
    /// Where their declarators end, by the name: behind these the assembler's name goes.
    pub ends: Vec<(usize, String)>,
    /// Initialisers that say no more than zero, to be taken away.
    pub zeros: Vec<Range<usize>>,
    /// Where the names stand in their declarations.
    pub places: HashSet<usize>,
}

/// Attributes that may stand on an array, for they mean the same, or nothing, on the pointer that takes its place.
const ATTRIBUTES: &[&str] = &["aligned", "unused", "used", "visibility", "deprecated", "nonstring"];

/// Reads the declarations that the keywords stand in.
///
/// # Errors
/// For what dlm cannot be said of.
pub fn read(source: &str, unit: &TranslationUnit, keywords: &[Token]) -> Result<Declared, Problem> {
    let mut found = Declared::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut marked = HashSet::new();
    for keyword in keywords {
        // The keyword is blank to the parser, and may stand before the first word of its declaration.
        let place = unit.0.partition_point(|external| external.span.end <= keyword.start);
        let bad = |text: &str| Problem::at(keyword.start, text);
        let external = unit.0.get(place).ok_or_else(|| bad("dlm without a declaration"))?;
        let ExternalDeclaration::Declaration(declaration) = &external.node else {
            return Err(bad("dlm is for arrays, not for functions"));
        };
        if !marked.insert(place) {
            return Err(bad("dlm twice in one declaration"));
        }
        specifiers(source, keyword, declaration)?;
        let is_extern = has_class(&declaration.node.specifiers, &StorageClassSpecifier::Extern);
        let is_static = has_class(&declaration.node.specifiers, &StorageClassSpecifier::Static);
        for init in &declaration.node.declarators {
            let declarator = &init.node.declarator;
            let Some(name) = declared(&declarator.node) else { continue };
            let text = &name.node.name;
            let sized = shape(&declarator.node, &declaration.node.specifiers)
                .map_err(|why| Problem::at(name.span.start, format!("{text} {why}")))?;
            if declarator.node.extensions.iter().any(|extension| matches!(extension.node, Extension::AsmLabel(_))) {
                return Err(Problem::at(
                    name.span.start,
                    format!("{text} has an assembler's name, which dlm arrays get from dlmc"),
                ));
            }
            if let Some(initializer) = &init.node.initializer {
                if is_extern || !is_zero(&initializer.node) {
                    let why = format!("{text} is initialised, and a dlm array begins as zeros: fill it in the program");
                    return Err(Problem::at(initializer.span.start, why));
                }
                found.zeros.push(declarator.span.end..initializer.span.end);
            }
            let index = *known.entry(text.clone()).or_insert_with(|| {
                let at = name.span.start;
                found.arrays.push(Array { name: text.clone(), at, defined: false, sized: false, shared: !is_static });
                found.arrays.len() - 1
            });
            let array = &mut found.arrays[index];
            array.sized |= sized;
            if !is_extern && !array.defined {
                (array.defined, array.at) = (true, name.span.start);
            }
            if array.shared {
                found.ends.push((declarator.span.end, text.clone()));
            }
            found.places.insert(name.span.start);
        }
    }
    if let Some(array) = found.arrays.iter().find(|array| array.defined && !array.sized) {
        return Err(Problem::at(array.at, format!("{} is defined without a size", array.name)));
    }
    for (place, external) in unit.0.iter().enumerate().filter(|(place, _)| !marked.contains(place)) {
        undeclared(place, external, &known)?;
    }
    Ok(found)
}

/// Refuses what a whole declaration cannot be.
fn specifiers(source: &str, keyword: &Token, declaration: &Node<Declaration>) -> Result<(), Problem> {
    let bad = |text: &str| Err(Problem::at(keyword.start, text));
    if has_class(&declaration.node.specifiers, &StorageClassSpecifier::Typedef) {
        return bad("dlm is for arrays, not for types");
    }
    if declaration.node.declarators.is_empty() {
        return bad("dlm declares nothing here");
    }
    let words = tokens_within(source, keyword.start.min(declaration.span.start), declaration.span.end);
    let mut attribute = None;
    let mut depth = 0usize;
    for (index, word) in words.iter().enumerate() {
        match word.of(source) {
            "_Thread_local" | "__thread" | "thread_local" => return bad("a dlm array cannot be one of each thread's"),
            "__attribute__" | "__attribute" => attribute = Some(depth),
            "(" => depth += 1,
            ")" => {
                depth = depth.saturating_sub(1);
                attribute = attribute.filter(|outside| depth > *outside);
            }
            name if attribute.is_some_and(|outside| depth == outside + 2) && index > 0 => {
                let first = matches!(words[index - 1].of(source), "(" | ",");
                let plain = name.trim_matches('_');
                if first && !plain.is_empty() && name != "," && !ATTRIBUTES.contains(&plain) {
                    return Err(Problem::at(word.start, format!("a dlm array cannot have the attribute {plain}")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether an object of this shape has a size by its declaration; an error says what it is instead of an array.
fn shape(declarator: &Declarator, specifiers: &[Node<DeclarationSpecifier>]) -> Result<bool, &'static str> {
    match outermost(declarator) {
        Some(DerivedDeclarator::Array(array)) => match array.node.size {
            ArraySize::Unknown => Ok(false),
            ArraySize::VariableUnknown | ArraySize::StaticExpression(_) => {
                Err("has a size that only parameters can have")
            }
            ArraySize::VariableExpression(_) => Ok(true),
        },
        Some(DerivedDeclarator::Pointer(_) | DerivedDeclarator::Block(_)) => {
            Err("is a pointer: dlm is for arrays; let it point to memory of dlm_alloc")
        }
        Some(_) => Err("is a function: dlm is for arrays"),
        None => {
            let whole = specifiers.iter().any(|specifier| match &specifier.node {
                DeclarationSpecifier::TypeSpecifier(kind) => {
                    matches!(
                        kind.node,
                        TypeSpecifier::Struct(_) | TypeSpecifier::TypedefName(_) | TypeSpecifier::TypeOf(_)
                    )
                }
                _ => false,
            });
            if whole { Ok(true) } else { Err("is a single number: dlm is for arrays and structures") }
        }
    }
}

/// What the declarator makes of the name first: of `*a[3]` an array.
fn outermost(declarator: &Declarator) -> Option<&DerivedDeclarator> {
    if let DeclaratorKind::Declarator(inner) = &declarator.kind.node {
        if let Some(own) = outermost(&inner.node) {
            return Some(own);
        }
    }
    let derived = || declarator.derived.iter().map(|derived| &derived.node);
    let pointer =
        |derived: &&DerivedDeclarator| matches!(derived, DerivedDeclarator::Pointer(_) | DerivedDeclarator::Block(_));
    derived().find(|derived| !pointer(derived)).or_else(|| derived().rfind(pointer))
}

/// `{}`, `{0}`, `{{0}}`.
fn is_zero(initializer: &Initializer) -> bool {
    match initializer {
        Initializer::List(items) => {
            items.len() <= 1
                && items.iter().all(|item| item.node.designation.is_empty() && is_nothing(&item.node.initializer.node))
        }
        Initializer::Expression(_) => false,
    }
}

fn is_nothing(initializer: &Initializer) -> bool {
    match initializer {
        Initializer::List(_) => is_zero(initializer),
        Initializer::Expression(expression) => match &expression.node {
            Expression::Constant(constant) => match &constant.node {
                Constant::Integer(integer) => integer.number.bytes().all(|digit| digit == b'0'),
                Constant::Float(float) => float.number.bytes().all(|digit| matches!(digit, b'0' | b'.')),
                Constant::Character(_) => false,
            },
            _ => false,
        },
    }
}

/// Refuses a declaration of one of the arrays without the keyword: the linker would take the array for its address.
fn undeclared(_: usize, external: &Node<ExternalDeclaration>, known: &HashMap<String, usize>) -> Result<(), Problem> {
    let names: Vec<_> = match &external.node {
        ExternalDeclaration::Declaration(declaration) => {
            declaration.node.declarators.iter().filter_map(|init| declared(&init.node.declarator.node)).collect()
        }
        ExternalDeclaration::FunctionDefinition(function) => {
            declared(&function.node.declarator.node).into_iter().collect()
        }
        ExternalDeclaration::StaticAssert(_) => Vec::new(),
    };
    match names.into_iter().find(|name| known.contains_key(&name.node.name)) {
        Some(name) => Err(Problem::at(
            name.span.start,
            format!("{} is declared with dlm elsewhere, and without it here", name.node.name),
        )),
        None => Ok(()),
    }
}
