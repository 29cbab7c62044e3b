// Package render makes objects and Helm values of the files that operators edit, with the variables of the
// configuration put in, and digests of them; and it lists the Helm charts that a cluster gets.
package render
