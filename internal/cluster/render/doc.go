// Package render makes what is applied out of the files that operators edit: objects, and Helm charts with their
// values, with the variables of the configuration put in, and digests of them.
package render
